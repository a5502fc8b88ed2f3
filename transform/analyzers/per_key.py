"""z_score of each key's rows, separately.

    y = (x - mean_k) / sqrt(variance_k)     k: the key of the row, biased variance

One analyzer per column of keys, for all columns that are scaled by it; its memory grows with the
number of keys, up to `max_keys`. A key is the 63-bit fingerprint of its text: of 10,000 keys, two
are taken for one with probability 5e-12.

    missing key                     a key like any other
    key that the analysis lacks,
    or without a value of x there   mean and variance over all rows
    x constant among the key's rows 0, for unseen x too
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from transform import compat
from transform.analyzers.fitted import keep
from transform.analyzers.statistics import LARGEST, Moments, merge_moments
from transform.compat import from_bytes, to_bytes

MOMENTS_OF_KEYS = "moments_of_keys"  # what each key's `Moments` are kept as
_FINGERPRINTS = np.iinfo(np.int64).max  # fingerprints are below; itself marks the row of all rows


class KeyedMoments(NamedTuple):
    """Mean and spread of each row's key; float64 `[batch, n]` each."""

    mean: tf.Tensor
    spread: tf.Tensor  # standard deviation; 0 where x is constant among the key's rows


def fingerprint(keys: tf.Tensor) -> tf.Tensor:
    """Return int64 `[batch]` of texts `[batch]`; the same on every machine."""
    return tf.strings.to_hash_bucket_fast(keys, int(_FINGERPRINTS))


def moments_of_keys(
    x: tf.Tensor, keys: tf.Tensor, *, max_keys: int, where: str, names: Sequence[str]
) -> KeyedMoments:
    """Analyze every column of `x` per key, and look up each row's.

    Args:
        x: float64 `[batch, n]`, NaN where a value is missing.
        keys: string `[batch]`.
        max_keys: the analysis fails beyond.
        where: what its error calls group and column of keys.
        names: of the columns of `x`.

    Raises (from Beam, during the analysis):
        ValueError: there are more than `max_keys` keys.
    """
    prints = fingerprint(keys)
    combiner = KeyedMomentsCombiner(x.shape[1], max_keys, where)
    known, moments = compat.combine(combiner, prints, x, name="moments_of_keys")
    moments = keep(moments, MOMENTS_OF_KEYS, names, fields=Moments._fields)
    all_rows = tf.size(known) - 1  # the last row of both
    at = tf.searchsorted(known, prints, side="left")
    row = tf.where(tf.equal(tf.gather(known, at), prints), at, all_rows)
    of_key = tf.gather(moments, row, axis=1)  # [5, batch, n]
    of_all = tf.gather(moments, all_rows, axis=1)  # [5, n]
    known_here = Moments(*tf.unstack(of_key, 5)).count > 0
    own = Moments(*tf.unstack(tf.where(known_here, of_key, of_all[:, tf.newaxis, :]), 5))
    variance = tf.where(own.maximum > own.minimum, own.m2 / tf.maximum(own.count, 1.0), 0.0)
    return KeyedMoments(tf.where(own.count > 0, own.mean, 0.0), tf.sqrt(variance))


def z_score(x: tf.Tensor, moments: KeyedMoments) -> tf.Tensor:
    """Return the formula above; float64 `[batch, n]`, finite for finite `x`."""
    varies = moments.spread > 0
    divisor = tf.where(varies, moments.spread, 1.0)
    x = tf.clip_by_value(x, -LARGEST, LARGEST)
    return tf.where(varies, (x - moments.mean) / divisor, tf.zeros_like(x))


class _Accumulator(NamedTuple):
    keys: np.ndarray  # int64 [keys], ascending
    moments: np.ndarray  # float64 [5, keys, n]


class KeyedMomentsCombiner(compat.Combiner):
    """Count, mean, M2, minimum and maximum of every key and column."""

    def __init__(self, size: int, max_keys: int, where: str):
        """Merge moments of `size` columns per key.

        Args:
            size: n, the number of columns.
            max_keys: more keys than these are an error.
            where: what the error calls group and column of keys.
        """
        self._size, self._max_keys, self._where = size, max_keys, where

    def __repr__(self) -> str:
        return f"<KeyedMomentsCombiner v1 size={self._size} max_keys={self._max_keys}>"

    def create_accumulator(self) -> _Accumulator:
        """Return int64 `[0]` and float64 `[5, 0, n]`."""
        return _Accumulator(np.zeros([0], np.int64), np.zeros([5, 0, self._size], np.float64))

    def add_input(
        self, accumulator: _Accumulator, batch_values: Sequence[np.ndarray]
    ) -> _Accumulator:
        """Merge one batch: its keys `[batch]` and values `[batch, n]`."""
        keys, x = batch_values
        batch = _moments_of_batch(np.asarray(keys, np.int64), np.asarray(x, np.float64))
        return self.merge(accumulator, batch)

    def extract_output(self, accumulator: _Accumulator) -> list[np.ndarray]:
        """Return keys `[keys + 1]`, moments `[5, keys + 1, n]`; the last are those of all rows."""
        of_all = _merged_keys(accumulator.moments)
        keys = np.append(accumulator.keys, _FINGERPRINTS)
        return [keys, np.concatenate([accumulator.moments, of_all], axis=1)]

    def output_tensor_infos(self) -> list[compat.TensorInfo]:
        """Describe int64 `[keys + 1]` and float64 `[5, keys + 1, n]`."""
        return [
            compat.TensorInfo(tf.int64, [None], None),
            compat.TensorInfo(tf.float64, [5, None, self._size], None),
        ]

    @property
    def accumulator_coder(self) -> compat.CacheCoder:
        """Both arrays."""
        return _AccumulatorCoder()

    def merge(self, a: _Accumulator, b: _Accumulator) -> _Accumulator:
        """Merge the moments of keys that both have."""
        b = _Accumulator(*b)
        keys = np.union1d(a.keys, b.keys)
        if keys.size > self._max_keys:
            raise ValueError(
                f"{self._where} has more than max_keys={self._max_keys} keys: scale by a column "
                "with fewer values, or raise max_keys (memory grows with the number of keys)"
            )
        wide = []
        for part in (a, b):
            moments = Moments.empty([keys.size, self._size])
            moments[:, np.searchsorted(keys, part.keys)] = part.moments
            wide.append(moments)
        return _Accumulator(keys, merge_moments(*wide))


def _merged_keys(moments: np.ndarray) -> np.ndarray:
    """Return `[5, 1, n]` of all keys' rows: merge half of the keys with the other half."""
    while moments.shape[1] > 1:
        half = moments.shape[1] // 2
        odd = moments[:, 2 * half :]
        merged = merge_moments(moments[:, :half], moments[:, half : 2 * half])
        moments = np.concatenate([merged, odd], axis=1)
    return moments if moments.shape[1] else Moments.empty([1, moments.shape[2]])


def _moments_of_batch(keys: np.ndarray, x: np.ndarray) -> _Accumulator:
    """Return `statistics.batch_moments` of the rows of each key."""
    unique, inverse = np.unique(keys, return_inverse=True)
    if not unique.size:
        return _Accumulator(unique, Moments.empty([0, x.shape[1]]))
    order = np.argsort(inverse, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(inverse[order]) > 0])
    x, row = x[order], inverse[order]
    present = np.isfinite(x)
    count = np.add.reduceat(present.astype(np.float64), starts)
    divisor = np.maximum(count, 1.0)
    limited = np.clip(np.where(present, x, 0.0), -LARGEST, LARGEST)
    mean = np.add.reduceat(limited, starts) / divisor
    deviation = np.where(present, limited - mean[row], 0.0)
    rounding = np.add.reduceat(deviation, starts) / divisor  # exactly 0 in exact arithmetic
    m2 = np.add.reduceat(np.square(deviation), starts) - count * np.square(rounding)
    moments = Moments(
        count=count,
        mean=mean + rounding,
        m2=np.maximum(m2, 0.0),
        minimum=np.minimum.reduceat(np.where(present, x, np.inf), starts),
        maximum=np.maximum.reduceat(np.where(present, x, -np.inf), starts),
    )
    return _Accumulator(unique, np.stack(moments))


class _AccumulatorCoder(compat.CacheCoder):
    def encode_cache(self, cache: _Accumulator) -> bytes:
        return to_bytes(keys=cache.keys, moments=cache.moments)

    def decode_cache(self, encoded_cache: bytes) -> _Accumulator:
        return _Accumulator(**from_bytes(encoded_cache))
