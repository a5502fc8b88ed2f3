"""Quantile boundaries of every column of a `[batch, n]` matrix, in one analyzer.

The sketch is the one behind `tft.quantiles` (tfx_bsl, weighted streaming quantiles; memory does
not grow with the rows). `tft.quantiles` itself cannot be used on several columns: the sketch
leaves a column without any value out of its result, and what follows it moves up by one.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import tensorflow as tf

from transform import compat
from transform.cache import from_bytes, to_bytes

EPSILON = 0.01  # as tft.bucketize: error of a boundary's rank, as a share of all rows
_MAX_ROWS = 1 << 32  # up to here the error is guaranteed


def quantile_boundaries(x: tf.Tensor, buckets: int) -> tf.Tensor:
    """Analyzes the inner quantiles of every column over the whole analysis data.

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
    """Analyzes some quantiles of every column over the whole analysis data.

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


class _Accumulator(NamedTuple):
    sketch: Any
    present: np.ndarray  # bool [n]: has any value


class QuantilesCombiner(compat.Combiner):
    """Feeds batches into one sketch per column."""

    def __init__(self, size: int, buckets: int, levels: Sequence[int] | None = None):
        """Args:
        size: n, the number of columns.
        buckets: number of buckets of about equal count.
        levels: which of the boundaries 0 (minimum) to `buckets` (maximum); None: the inner ones.
        """
        self._size, self._buckets = size, buckets
        self._levels = list(range(1, buckets) if levels is None else levels)

    def __repr__(self) -> str:  # part of the key of TFT's analyzer cache
        return (
            f"<QuantilesCombiner v3 size={self._size} buckets={self._buckets} "
            f"levels={self._levels}>"
        )

    def create_accumulator(self) -> _Accumulator:
        """No rows."""
        epsilon = min(1.0 / self._buckets, EPSILON)
        sketch = compat.QuantilesSketch(epsilon, _MAX_ROWS, self._size)
        return _Accumulator(sketch, np.zeros([self._size], bool))

    def add_input(self, accumulator: _Accumulator, batch_values: Any) -> _Accumulator:
        """Adds the rows of one batch; the sketch leaves NaN out."""
        x = np.asarray(batch_values[0], np.float64)
        accumulator.sketch.AddValues(pa.array(np.ravel(x)))
        present = accumulator.present | ~np.isnan(x).all(axis=0)
        return _Accumulator(accumulator.sketch, present)

    def merge_accumulators(self, accumulators: Any) -> _Accumulator:
        """Merges any number of accumulators into a new one."""
        merged = self.create_accumulator()
        present = merged.present
        for accumulator in accumulators:
            merged.sketch.Merge(accumulator.sketch)
            present = present | accumulator.present
        return _Accumulator(merged.sketch, present)

    def compact(self, accumulator: _Accumulator) -> _Accumulator:
        """Shrinks the sketch before it is sent elsewhere."""
        accumulator.sketch.Compact()
        return accumulator

    def extract_output(self, accumulator: _Accumulator) -> list[np.ndarray]:
        """The boundaries at the levels."""
        boundaries = np.zeros([self._size, len(self._levels)], np.float64)
        found = accumulator.sketch.GetQuantiles(self._buckets).to_pylist()
        if found:
            boundaries[accumulator.present] = np.asarray(found, np.float64)[:, self._levels]
        return [boundaries]

    def output_tensor_infos(self) -> list[Any]:
        """One float64 `[n, levels]` tensor."""
        return [compat.TensorInfo(tf.float64, [self._size, len(self._levels)], None)]

    @property
    def accumulator_coder(self) -> Any:
        """The sketch knows its own bytes, a protobuf message."""
        return _AccumulatorCoder()


class _AccumulatorCoder(compat.CacheCoder):
    """Compresses what the cache keeps: a sketch spends 32 bytes on each value that it holds.

    TFT writes the cache through gzip at its default level, which takes several times as long on
    sketches as the fastest level does, for hardly fewer bytes.
    """

    def encode_cache(self, cache: Any) -> bytes:
        state = np.frombuffer(cache.sketch.__getstate__(), np.uint8)
        return zlib.compress(to_bytes(sketch=state, present=cache.present), level=1)

    def decode_cache(self, encoded_cache: bytes) -> _Accumulator:
        stored = from_bytes(zlib.decompress(encoded_cache))
        sketch = compat.QuantilesSketch.__new__(compat.QuantilesSketch)
        sketch.__setstate__(stored["sketch"].tobytes())
        return _Accumulator(sketch, stored["present"])
