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

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from transform import compat
from transform.aliases import Array

STATISTICS = "statistics"  # what `FittedStatistics` are kept as
LARGEST = 2.0**480  # 3e144: for mean and variance, larger numbers count as this; no sum overflows


class Moments(NamedTuple):
    """What is merged, of tensors or arrays; an array of these five is `Moments(*array)`."""

    count: Array
    mean: Array  # 0 where count is 0
    m2: Array  # sum of squared distances from the mean
    minimum: Array  # +inf where count is 0
    maximum: Array  # -inf where count is 0

    @classmethod
    def empty(cls, shape: Sequence[int]) -> np.ndarray:
        """Return float64 `[5, *shape]` without rows."""
        stacked = np.zeros([len(cls._fields), *shape], np.float64)
        moments = cls(*stacked)  # views of it
        moments.minimum[...], moments.maximum[...] = np.inf, -np.inf
        return stacked


class FittedStatistics(NamedTuple):
    """Of the values that are not missing; float64 `[n]` each."""

    count: tf.Tensor
    mean: tf.Tensor  # 0 where count is 0
    variance: tf.Tensor  # biased (divided by count), 0 where count is 0
    minimum: tf.Tensor  # +inf where count is 0
    maximum: tf.Tensor  # -inf where count is 0

    @property
    def varies(self) -> tf.Tensor:
        """Whether a column holds two different values."""
        return self.maximum > self.minimum

    def limited(self, low: tf.Tensor, high: tf.Tensor) -> FittedStatistics:
        """Return the statistics with minimum and maximum clipped to `low` and `high`, `[n]`.

        Mean and variance stay those of the values before: whoever clips by learned bounds cannot
        use them.
        """
        empty = tf.equal(self.count, 0.0)
        minimum, maximum = (
            tf.where(empty, extreme, tf.clip_by_value(extreme, low, high))
            for extreme in (self.minimum, self.maximum)
        )
        return self._replace(minimum=minimum, maximum=maximum)


def column_statistics(x: tf.Tensor, *, name: str = "column_statistics") -> FittedStatistics:
    """Analyze every column of `x` over the whole analysis data.

    Args:
        x: float64 `[batch, n]`, NaN where a value is missing, never infinite.
        name: name scope of the analyzer, which Beam's stages show.

    Returns:
        The statistics, known once Transform's analysis has run.
    """
    (merged,) = compat.combine(MomentsCombiner(x.shape[1]), batch_moments(x), name=name)
    found = Moments(*tf.unstack(merged, len(Moments._fields), axis=0))
    return FittedStatistics(
        count=found.count,
        mean=found.mean,
        variance=found.m2 / tf.maximum(found.count, 1.0),
        minimum=found.minimum,
        maximum=found.maximum,
    )


def batch_moments(x: tf.Tensor) -> tf.Tensor:
    """Return the moments of one batch.

    Args:
        x: float64 `[batch, n]`, NaN where missing.

    Returns:
        float64 `[5, n]`, a field of `Moments` each; mean and m2 are of the numbers limited to
        +-`LARGEST`.
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
    moments = Moments(
        count=count,
        mean=mean + rounding,
        m2=tf.maximum(m2, 0.0),
        minimum=tf.reduce_min(tf.where(present, x, infinity), axis=0),
        maximum=tf.reduce_max(tf.where(present, x, -infinity), axis=0),
    )
    return tf.stack(moments)


class MomentsCombiner(compat.Combiner):
    """Merges `batch_moments`; an accumulator is a float64 `[5, n]` array."""

    def __init__(self, size: int):
        self._size = size

    def __repr__(self) -> str:
        return f"<MomentsCombiner v1 size={self._size}>"

    def create_accumulator(self) -> np.ndarray:
        """Return float64 `[5, n]` without rows: count, mean and M2 are 0."""
        return Moments.empty([self._size])

    def add_input(self, accumulator: np.ndarray, batch_values: Sequence[np.ndarray]) -> np.ndarray:
        """Merge one batch's moments, float64 `[5, n]`, into the accumulator."""
        return self.merge(accumulator, batch_values[0])

    def merge(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Merge two accumulators."""
        return merge_moments(a, np.asarray(b, np.float64))

    def extract_output(self, accumulator: np.ndarray) -> list[np.ndarray]:
        """Return the accumulator, which becomes a constant of the graph."""
        return [np.asarray(accumulator, np.float64)]

    def output_tensor_infos(self) -> list[compat.TensorInfo]:
        """Describe one float64 `[5, n]` tensor."""
        return [compat.TensorInfo(tf.float64, [5, self._size], None)]


def merge_moments(stacked_a: np.ndarray, stacked_b: np.ndarray) -> np.ndarray:
    """Return the update of the module's docstring, for all columns; float64 `[5, ...]`."""
    a, b = Moments(*stacked_a), Moments(*stacked_b)
    count = a.count + b.count
    share = b.count / np.maximum(count, 1.0)
    difference = b.mean - a.mean
    merged = Moments(
        count=count,
        mean=a.mean + difference * share,
        m2=a.m2 + b.m2 + np.square(difference) * a.count * share,
        minimum=np.minimum(a.minimum, b.minimum),
        maximum=np.maximum(a.maximum, b.maximum),
    )
    return np.stack(merged)
