"""Quantile boundaries of every column of a `[batch, n]` matrix, in one analyzer.

`tft.quantiles` cannot be used on several columns: its sketch leaves a column without any value out
of its result, and what follows it moves up by one. Its sketch also takes several times the memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from transform import compat
from transform.analyzers.quantile_sketch import QuantileSketch, capacity_for
from transform.compat import from_bytes, to_bytes

EPSILON = 0.01  # as tft.bucketize: error of a boundary's rank, as a share of all rows


def quantile_boundaries(x: tf.Tensor, buckets: int) -> tf.Tensor:
    """Analyze the inner quantiles of every column over the whole analysis data.

    Args:
        x: float64 `[batch, n]`, NaN where a value is missing.
        buckets: number of buckets of about equal count.

    Returns:
        float64 `[n, buckets - 1]`, ascending in each row; 0 for a column without any value.
    """
    combiner = QuantilesCombiner(x.shape[1], buckets)
    (boundaries,) = compat.combine(combiner, x, name="quantiles")
    return boundaries


def quantiles_at(x: tf.Tensor, levels: Sequence[int], *, grid: int) -> tf.Tensor:
    """Analyze some quantiles of every column over the whole analysis data.

    Args:
        x: float64 `[batch, n]`, NaN where a value is missing.
        levels: quantile times `grid`, integers 0..grid; 0 is the minimum, `grid` the maximum.
        grid: the error of a quantile's rank is at most 1 / grid of the rows.

    Returns:
        float64 `[n, len(levels)]`; 0 for a column without any value.
    """
    combiner = QuantilesCombiner(x.shape[1], grid, levels)
    (quantiles,) = compat.combine(combiner, x, name="order_statistics")
    return quantiles


class QuantilesCombiner(compat.Combiner):
    """Feeds batches into a sketch of all columns."""

    def __init__(self, size: int, buckets: int, levels: Sequence[int] | None = None):
        """Sketch `size` columns.

        Args:
            size: n, the number of columns.
            buckets: number of buckets of about equal count.
            levels: which of the boundaries 0 (minimum) to `buckets` (maximum); None: inner ones.
        """
        self._size, self._buckets = size, buckets
        self._levels = list(range(1, buckets) if levels is None else levels)

    def __repr__(self) -> str:
        return (
            f"<QuantilesCombiner v4 size={self._size} buckets={self._buckets} "
            f"levels={self._levels}>"
        )

    def create_accumulator(self) -> QuantileSketch:
        """Return a sketch without values."""
        return QuantileSketch(self._size, capacity_for(min(1.0 / self._buckets, EPSILON)))

    def add_input(
        self, accumulator: QuantileSketch, batch_values: Sequence[np.ndarray]
    ) -> QuantileSketch:
        """Add the rows of one batch; the sketch leaves NaN out."""
        accumulator.add(np.asarray(batch_values[0], np.float64))
        return accumulator

    def merge(self, a: QuantileSketch, b: QuantileSketch) -> QuantileSketch:
        """Merge a sketch into another one."""
        a.merge(b)
        return a

    def compact(self, accumulator: QuantileSketch) -> QuantileSketch:
        """Shrink the sketch before it is sent elsewhere."""
        accumulator.compact()
        return accumulator

    def extract_output(self, accumulator: QuantileSketch) -> list[np.ndarray]:
        """Return the boundaries at the levels."""
        return [accumulator.quantiles(self._levels, grid=self._buckets)]

    def output_tensor_infos(self) -> list[compat.TensorInfo]:
        """Describe one float64 `[n, levels]` tensor."""
        return [compat.TensorInfo(tf.float64, [self._size, len(self._levels)], None)]

    @property
    def accumulator_coder(self) -> compat.CacheCoder:
        """The sketch as arrays."""
        return _AccumulatorCoder()


class _AccumulatorCoder(compat.CacheCoder):
    """Compresses what the cache keeps.

    TFT writes the cache through gzip at its default level, which takes several times as long on
    sketches as the fastest level does, for hardly fewer bytes.
    """

    def encode_cache(self, cache: QuantileSketch) -> bytes:
        return zlib.compress(to_bytes(**cache.state()), level=1)

    def decode_cache(self, encoded_cache: bytes) -> QuantileSketch:
        return QuantileSketch.from_state(from_bytes(zlib.decompress(encoded_cache)))
