"""One pass, all columns: count, mean, variance, minimum and maximum of a `[batch, n]` matrix.

A batch is reduced in the graph, in float64 and with the corrected two-pass formula; batches are
merged by Chan, Golub and LeVeque's update ("Algorithms for computing the sample variance",
1983), which stays exact where the mean is huge beside the spread (1e9 +- 1):

    n = n_a + n_b
    d = mean_b - mean_a
    mean = mean_a + d n_b / n
    M2   = M2_a + M2_b + d^2 n_a n_b / n
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from transform import compat

_COUNT, _MEAN, _M2, _MIN, _MAX = range(5)
LARGEST = 2.0**480  # 3e144: for mean and variance, larger numbers count as this; no sum overflows


class ColumnStatistics(NamedTuple):
    """Of the values that are not missing; float64 `[n]` each."""

    count: tf.Tensor
    mean: tf.Tensor  # 0 where count is 0
    variance: tf.Tensor  # biased (divided by count), 0 where count is 0
    minimum: tf.Tensor  # +inf where count is 0
    maximum: tf.Tensor  # -inf where count is 0

    def limited(self, low: tf.Tensor, high: tf.Tensor) -> ColumnStatistics:
        """With minimum and maximum of the values clipped to `low` and `high`, `[n]`.

        Mean and variance stay those of the values before: whoever clips by learned bounds cannot
        use them.
        """
        empty = tf.equal(self.count, 0.0)
        minimum, maximum = (
            tf.where(empty, extreme, tf.clip_by_value(extreme, low, high))
            for extreme in (self.minimum, self.maximum)
        )
        return self._replace(minimum=minimum, maximum=maximum)


def column_statistics(x: tf.Tensor, *, name: str = "column_statistics") -> ColumnStatistics:
    """Analyzes every column of `x` over the whole analysis data.

    Args:
        x: float64 `[batch, n]`, NaN where a value is missing, never infinite.
        name: name scope of the analyzer, which Beam's stages show.

    Returns:
        The statistics, known once Transform's analysis has run.
    """
    (merged,) = compat.combine(MomentsCombiner(x.shape[1]), batch_moments(x), name=name)
    count, mean, m2, minimum, maximum = tf.unstack(merged, 5, axis=0)
    return ColumnStatistics(count, mean, m2 / tf.maximum(count, 1.0), minimum, maximum)


def batch_moments(x: tf.Tensor) -> tf.Tensor:
    """Count, mean, M2, minimum, maximum of one batch.

    Args:
        x: float64 `[batch, n]`, NaN where missing.

    Returns:
        float64 `[5, n]`; mean and M2 are of the numbers limited to +-`LARGEST`.
    """
    infinity = tf.constant(np.inf, tf.float64)
    present = tf.math.is_finite(x)
    count = tf.reduce_sum(tf.cast(present, tf.float64), axis=0)
    divisor = tf.maximum(count, 1.0)
    limited = tf.clip_by_value(tf.where(present, x, 0.0), -LARGEST, LARGEST)
    mean = tf.reduce_sum(limited, axis=0) / divisor
    deviation = tf.where(present, limited - mean, 0.0)
    rounding = tf.reduce_sum(deviation, axis=0) / divisor  # exactly 0 in exact arithmetic
    m2 = tf.reduce_sum(tf.square(deviation), axis=0) - count * tf.square(rounding)
    return tf.stack(
        [
            count,
            mean + rounding,
            tf.maximum(m2, 0.0),
            tf.reduce_min(tf.where(present, x, infinity), axis=0),
            tf.reduce_max(tf.where(present, x, -infinity), axis=0),
        ]
    )


class MomentsCombiner(compat.Combiner):
    """Merges `batch_moments`; an accumulator is a float64 `[5, n]` array."""

    def __init__(self, size: int):
        """Args: size: n, the number of columns."""
        self._size = size

    def __repr__(self) -> str:  # part of the key of TFT's analyzer cache
        return f"<MomentsCombiner v1 size={self._size}>"

    def create_accumulator(self) -> np.ndarray:
        """No rows: count, mean and M2 are 0."""
        accumulator = np.zeros([5, self._size], np.float64)
        accumulator[_MIN] = np.inf
        accumulator[_MAX] = -np.inf
        return accumulator

    def add_input(self, accumulator: np.ndarray, batch_values: Any) -> np.ndarray:
        """Merges one batch's moments into the accumulator."""
        return merge_moments(accumulator, np.asarray(batch_values[0], np.float64))

    def merge_accumulators(self, accumulators: Any) -> np.ndarray:
        """Merges any number of accumulators."""
        merged = self.create_accumulator()
        for accumulator in accumulators:
            merged = merge_moments(merged, np.asarray(accumulator, np.float64))
        return merged

    def extract_output(self, accumulator: np.ndarray) -> list[np.ndarray]:
        """The accumulator itself: it becomes a constant of the graph."""
        return [np.asarray(accumulator, np.float64)]

    def output_tensor_infos(self) -> list[Any]:
        """One float64 `[5, n]` tensor."""
        return [compat.TensorInfo(tf.float64, [5, self._size], None)]

    @property
    def accumulator_coder(self) -> Any:
        """JSON keeps every bit of a float64, infinities included."""
        return compat.JsonNumpyCacheCoder(np.float64)


def merge_moments(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The update of the module's docstring, for all columns at once; float64 `[5, n]`."""
    count = a[_COUNT] + b[_COUNT]
    share = b[_COUNT] / np.maximum(count, 1.0)
    difference = b[_MEAN] - a[_MEAN]
    return np.stack(
        [
            count,
            a[_MEAN] + difference * share,
            a[_M2] + b[_M2] + np.square(difference) * a[_COUNT] * share,
            np.minimum(a[_MIN], b[_MIN]),
            np.maximum(a[_MAX], b[_MAX]),
        ]
    )
