"""Hashes of rows from their columns: equal for equal values, however they are stored."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from components.arrow_example_gen.columns import flat_values

_STEP = np.uint64(0x9E3779B97F4A7C15)  # of splitmix64 (Steele, Lea and Flood 2014)


def row_hashes(batch: pa.RecordBatch) -> np.ndarray:
    """Return the hashes of rows, uint64 `[rows]`.

    A row's hash depends on the names and values of its columns alone. A column without a value
    changes nothing, so it may be missing, and the order of columns does not matter.

    Args:
        batch: Columns of type `large_list<float | int64 | large_binary>`, or null.
    """
    hashes = np.zeros(batch.num_rows, np.uint64)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if types.is_null(column.type):
            continue
        ends, values = flat_values(column)
        words = _mixed(_words(values) + _STEP * _places(ends))
        seed = hashlib.blake2b(name.encode(), digest_size=8).digest()
        total = _sums(words, ends) + np.frombuffer(seed, np.uint64)
        hashes += np.where(np.diff(ends) > 0, _mixed(total), np.uint64(0))
    return hashes


def _words(values: pa.Array) -> np.ndarray:
    """Return a uint64 for each value."""
    if not types.is_large_binary(values.type):
        numbers = values.to_numpy(zero_copy_only=False)
        return numbers.view(f"u{numbers.itemsize}").astype(np.uint64)
    _, ends, data = values.buffers()
    if not len(values) or data is None:
        return np.zeros(len(values), np.uint64)
    ends = np.frombuffer(ends, np.int64)[values.offset : values.offset + len(values) + 1]
    text = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]].astype(np.uint64)
    ends = ends - ends[0]
    bytes_and_places = text + (_places(ends) << np.uint64(8))
    return _sums(_mixed(bytes_and_places), ends) + np.diff(ends).astype(np.uint64)


def _places(ends: np.ndarray) -> np.ndarray:
    """Return the place of each value in its list, from 1."""
    count = np.arange(1, ends[-1] + 1)
    return (count - np.repeat(ends[:-1], np.diff(ends))).astype(np.uint64)


def _sums(words: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the sum of each list modulo 2^64."""
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(words, dtype=np.uint64)])
    return total[ends[1:]] - total[ends[:-1]]


def _mixed(words: np.ndarray) -> np.ndarray:
    """Return a permutation of uint64 in which each bit depends on all bits: splitmix64."""
    words = words + _STEP
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
