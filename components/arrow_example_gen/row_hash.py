"""Hashes of rows, computed column by column.

A row's hash is the sum, modulo 2^64, of one hash for each of its values, which depends on the
column's name, the value's place in its list, and the value. So it does not depend on the order of
the columns, on columns without a value in the row, on other rows or on the file format. Only NumPy
works on each row; a text is hashed once per distinct text of a batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as types

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_NAN = np.uint64(0x7FC00000)


def row_hashes(batch: pa.RecordBatch, columns: Sequence[str] | None = None) -> np.ndarray:
    """Return a hash of each row, uint64 `[rows]`.

    Args:
        batch: columns of lists as `columns.as_lists` returns them.
        columns: those to hash; None: all.
    """
    hashes = np.zeros(batch.num_rows, np.uint64)
    for name in batch.schema.names if columns is None else columns:
        hashes += _column_hashes(name, batch[batch.schema.get_field_index(name)])
    return hashes


def with_places(hashes: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return hashes of rows and of their places in their file, uint64 `[rows]`."""
    return mix(hashes + mix(places.astype(np.uint64)))


def mix(words: np.ndarray) -> np.ndarray:
    """Return splitmix64 of uint64 words (Steele, Lea, Flood 2014): a bijection without patterns."""
    words = words + _GOLDEN
    words = (words ^ (words >> np.uint64(30))) * _FACTORS[0]
    words = (words ^ (words >> np.uint64(27))) * _FACTORS[1]
    return words ^ (words >> np.uint64(31))


def _column_hashes(name: str, column: pa.Array) -> np.ndarray:
    offsets = np.asarray(column.offsets).astype(np.int64)
    words = _words(column.values.slice(offsets[0], offsets[-1] - offsets[0]))
    offsets = offsets - offsets[0]
    lengths = np.diff(offsets)
    key = mix(np.array([_hash_text(name.encode())], np.uint64))
    if len(words) == len(column) and (lengths == 1).all():
        return mix(words ^ mix(key))
    places = np.arange(len(words)) - np.repeat(offsets[:-1], lengths)
    hashes = mix(words ^ mix(key + places.astype(np.uint64)))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes, dtype=np.uint64)])
    return sums[offsets[1:]] - sums[offsets[:-1]]  # exact: both wrap around


def _words(values: pa.Array) -> np.ndarray:
    """Return a word for each value, uint64 `[values]`; equal values have equal words."""
    if types.is_integer(values.type):
        return values.to_numpy().astype(np.int64).view(np.uint64)
    if types.is_floating(values.type):
        numbers = values.to_numpy().astype(np.float32) + np.float32(0)  # -0.0 + 0 is 0.0
        words = numbers.view(np.uint32).astype(np.uint64)
        return np.where(np.isnan(numbers), _NAN, words)
    encoded = values.dictionary_encode()
    known = [_hash_text(value) for value in encoded.dictionary.to_pylist()]
    return np.array(known, np.uint64)[encoded.indices.to_numpy()]


def _hash_text(value: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(value, digest_size=8).digest(), "little")
