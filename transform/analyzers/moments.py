"""One pass, all columns: count, mean, variance, minimum and maximum of a `[batch, n]` matrix.

A batch is reduced in the graph, in float64 and with the corrected two-pass formula; batches are
merged by Chan, Golub and LeVeque's update ("Algorithms for computing the sample variance",
1983), which stays exact where the mean is huge beside the spread (1e9 +- 1):

    n = n_a + n_b
    d = mean_b - mean_a
    mean = mean_a + d n_b / n
    M2   = M2_a + M2_b + d^2 n_a n_b / n

Yeo and Johnson's power of each column, by maximum likelihood, in one pass over the data.

    psi(x, l) = ((1 + x)^l - 1) / l               x >= 0   (log(1 + x)   where l = 0)
                -((1 - x)^(2 - l) - 1) / (2 - l)  x < 0    (-log(1 - x)  where l = 2)

    log-likelihood of a row = -log(variance of psi) / 2 + (l - 1) mean of sign(x) log(1 + |x|)

I.-K. Yeo, R. A. Johnson, "A new family of power transformations to improve normality or symmetry"
(2000). The moments of psi, which merge, are kept for each power of a grid, and the power is that of
the grid with the largest likelihood: half a step, 0.02, from the best one there is, which is less
than what a sample of a thousand rows knows of it. Mean and variance of psi are those of the very
power, so that what is scaled by them has mean 0 and variance 1.

An accumulator takes 6 KB for each column. A batch is held once more at a time, not once for each
power.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from transform import compat
from transform.block import LARGEST, Array

STATISTICS = "statistics"  # what `FittedStatistics` are kept as


class Moments(NamedTuple):
    """What is merged, of tensors or arrays; an array of these five is `Moments(*array)`."""

    count: Array
    mean: Array  # 0 where count is 0
    m2: Array  # sum of squared distances from the mean
    minimum: Array  # +inf where count is 0
    maximum: Array  # -inf where count is 0


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

    `x` is float64 `[batch, n]`, NaN where a value is missing, never infinite; `name` is what Beam's
    stages show. The statistics are known once Transform's analysis has run.
    """
    (merged,) = compat.combine(_MomentsCombiner(x.shape[1]), _batch_moments(x), name=name)
    found = Moments(*tf.unstack(merged, len(Moments._fields), axis=0))
    return FittedStatistics(
        count=found.count,
        mean=found.mean,
        variance=found.m2 / tf.maximum(found.count, 1.0),
        minimum=found.minimum,
        maximum=found.maximum,
    )


def _batch_moments(x: tf.Tensor) -> tf.Tensor:
    """Return the moments of one batch."""
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


class _MomentsCombiner(compat.Combiner):
    """Merges `_batch_moments`; an accumulator is a float64 `[5, n]` array."""

    def __init__(self, size: int):
        self._size = size
        self.outputs = [(tf.float64, [5, size])]

    def __repr__(self) -> str:
        return f"<MomentsCombiner v1 size={self._size}>"

    def create_accumulator(self) -> np.ndarray:
        return np.repeat([[0.0], [0.0], [0.0], [np.inf], [-np.inf]], self._size, axis=1)

    def merge(self, stacked_a: np.ndarray, stacked_b: np.ndarray) -> np.ndarray:
        # The update of the module's docstring, for all columns; float64 `[5, ...]`.
        a, b = Moments(*stacked_a), Moments(*np.asarray(stacked_b, np.float64))
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

    def extract_output(self, accumulator: np.ndarray) -> list[np.ndarray]:
        return [np.asarray(accumulator, np.float64)]


_GRID = np.arange(-50, 101) / 25.0  # -2 to 4; 0, 1 and 2 are in it exactly
_ITSELF = int(np.flatnonzero(_GRID == 1.0)[0])
_NEAR = 0.05
_TOO_CLOSE = 1e-7  # a deviation below this share of the largest |psi|: rounding decides


class Powers(NamedTuple):
    """Of the values that are not missing; float64 `[n]` each."""

    power: tf.Tensor  # 1 (psi is x) where no power is likelier
    mean: tf.Tensor  # of psi
    variance: tf.Tensor  # of psi, biased


def yeo_johnson(x: tf.Tensor, power: tf.Tensor) -> tf.Tensor:
    """Return the function above of float64 `x`: finite, about `LARGEST` at most; NaN stays NaN."""
    exponent = tf.where(x < 0, 2.0 - power, power)
    size = tf.math.log1p(tf.abs(x))
    reached = tf.minimum(exponent * size, math.log(LARGEST))
    is_log = tf.equal(exponent, 0.0)
    grown = tf.math.expm1(reached) / tf.where(is_log, tf.ones_like(exponent), exponent)
    itself = tf.minimum(tf.abs(x), LARGEST)  # without the rounding of a logarithm and back
    grown = tf.where(tf.equal(exponent, 1.0), itself, grown)
    return tf.sign(x) * tf.where(is_log, size, grown)


def fitted_powers(x: tf.Tensor, statistics: FittedStatistics) -> Powers:
    """Analyze every column of `x` over the whole analysis data; see `column_statistics`."""
    n, powers = x.shape[1], len(_GRID)
    batch = tf.reshape(tf.transpose(_batch_moments_of_powers(x), [1, 0, 2]), [-1, (powers + 1) * n])
    (merged,) = compat.combine(_MomentsCombiner((powers + 1) * n), batch, name="powers")
    found = Moments(*tf.unstack(tf.reshape(merged, [-1, powers + 1, n]), len(Moments._fields)))
    variance = found.m2 / tf.maximum(found.count, 1.0)
    # psi grows with x: its extremes are those of x.
    reach = tf.stack([statistics.minimum, statistics.maximum])
    reach = tf.where(tf.math.is_finite(reach), reach, tf.zeros_like(reach))
    ends = yeo_johnson(reach[:, tf.newaxis, :], tf.constant(_GRID[:, np.newaxis]))
    likelihood = _likelihood(variance[:-1], tf.reduce_max(tf.abs(ends), axis=0), found.mean[-1])
    known = tf.reduce_any(tf.math.is_finite(likelihood), axis=0)
    best = tf.argmax(likelihood, axis=0, output_type=tf.int32)
    best = tf.where(tf.logical_and(known, statistics.varies), best, _ITSELF)
    at = tf.stack([best, tf.range(n)], axis=1)
    itself = tf.equal(best, _ITSELF)  # x: its own moments, without a logarithm and back
    return Powers(
        tf.gather(tf.constant(_GRID), best),
        tf.where(itself, statistics.mean, tf.gather_nd(found.mean, at)),
        tf.where(itself, statistics.variance, tf.gather_nd(variance, at)),
    )


def _batch_moments_of_powers(x: tf.Tensor) -> tf.Tensor:
    """Return `[powers + 1, 5, n]`: moments for each power, and of the signed logarithms.

    What is the same for each power is computed once, and extremes, which are those of x, are not.
    """
    present = tf.math.is_finite(x)
    known = tf.where(present, x, tf.zeros_like(x))  # psi(0) = 0
    weight = tf.cast(present, tf.float64)
    count = tf.reduce_sum(weight, axis=0)
    divisor = tf.maximum(count, 1.0)
    negative, sign, size = known < 0, tf.sign(known), tf.math.log1p(tf.abs(known))

    def of_power(power: tf.Tensor) -> tf.Tensor:
        # Where an exponent is 0, 1e-12 gives the logarithm to 1e-9 and less.
        exponent = tf.where(negative, _not_zero(2.0 - power), _not_zero(power))
        reached = tf.minimum(exponent * size, math.log(LARGEST))
        return of_values(sign * _expm1(reached) / exponent)

    def of_values(y: tf.Tensor) -> tf.Tensor:
        mean = tf.reduce_sum(y, axis=0) / divisor
        deviation = (y - mean) * weight
        rounding = tf.reduce_sum(deviation, axis=0) / divisor
        m2 = tf.reduce_sum(tf.square(deviation), axis=0) - count * tf.square(rounding)
        zero = tf.zeros_like(count)
        return tf.stack(Moments(count, mean + rounding, tf.maximum(m2, 0.0), zero, zero))

    of_each = tf.map_fn(
        of_power,
        tf.constant(_GRID),
        fn_output_signature=tf.TensorSpec([len(Moments._fields), x.shape[1]], tf.float64),
        parallel_iterations=1,
    )
    return tf.concat([of_each, of_values(sign * size)[tf.newaxis]], axis=0)


def _not_zero(exponent: tf.Tensor) -> tf.Tensor:
    return tf.where(tf.equal(exponent, 0.0), tf.constant(1e-12, tf.float64), exponent)


def _expm1(x: tf.Tensor) -> tf.Tensor:
    """Return exp(x) - 1 to 1e-14, much faster than TensorFlow's, which is not vectorised."""
    near = tf.constant(1.0, tf.float64)
    small = tf.clip_by_value(x, -_NEAR, _NEAR)
    for term in range(8, 1, -1):
        near = 1.0 + small * near / float(term)
    return tf.where(tf.abs(x) < _NEAR, x * near, tf.exp(x) - 1.0)


def _likelihood(variance: tf.Tensor, largest: tf.Tensor, logs: tf.Tensor) -> tf.Tensor:
    """Return float64 `[powers, n]`; -inf where a power merges values or exceeds `LARGEST`."""
    deviation = tf.sqrt(variance)
    # psi stops at LARGEST / exponent: all that is farther out would be one value.
    usable = tf.logical_and(deviation > _TOO_CLOSE * largest, largest < LARGEST / 8.0)
    safe = tf.where(usable, deviation, tf.ones_like(deviation))
    value = -tf.math.log(safe) + (_GRID[:, np.newaxis] - 1.0) * logs
    return tf.where(usable, value, tf.fill(tf.shape(value), np.float64(-np.inf)))
