"""Yeo and Johnson's power of each column, by maximum likelihood, in one pass over the data.

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
from transform.analyzers.statistics import (
    LARGEST,
    FittedStatistics,
    Moments,
    MomentsCombiner,
)

GRID = np.arange(-50, 101) / 25.0  # -2 to 4; 0, 1 and 2 are in it exactly
_ITSELF = int(np.flatnonzero(GRID == 1.0)[0])
_NEAR = 0.05
_TOO_CLOSE = 1e-7  # a deviation below this share of the largest |psi|: rounding decides


class Powers(NamedTuple):
    """Of the values that are not missing; float64 `[n]` each."""

    power: tf.Tensor  # 1 (psi is x) where no power is likelier
    mean: tf.Tensor  # of psi
    variance: tf.Tensor  # of psi, biased


def yeo_johnson(x: tf.Tensor, power: tf.Tensor) -> tf.Tensor:
    """Return the function above, finite for all finite x.

    Args:
        x: float64, NaN stays NaN.
        power: float64, of a shape that goes with that of `x`.

    Returns:
        float64, about `LARGEST` from 0 at most.
    """
    exponent = tf.where(x < 0, 2.0 - power, power)
    size = tf.math.log1p(tf.abs(x))
    reached = tf.minimum(exponent * size, math.log(LARGEST))
    is_log = tf.equal(exponent, 0.0)
    grown = tf.math.expm1(reached) / tf.where(is_log, tf.ones_like(exponent), exponent)
    itself = tf.minimum(tf.abs(x), LARGEST)  # without the rounding of a logarithm and back
    grown = tf.where(tf.equal(exponent, 1.0), itself, grown)
    return tf.sign(x) * tf.where(is_log, size, grown)


def fitted_powers(x: tf.Tensor, statistics: FittedStatistics) -> Powers:
    """Analyze every column of `x` over the whole analysis data.

    Args:
        x: float64 `[batch, n]`, NaN where a value is missing, never infinite.
        statistics: of `x`.
    """
    n, powers = x.shape[1], len(GRID)
    batch = tf.reshape(tf.transpose(_batch(x), [1, 0, 2]), [-1, (powers + 1) * n])
    (merged,) = compat.combine(MomentsCombiner((powers + 1) * n), batch, name="powers")
    found = Moments(*tf.unstack(tf.reshape(merged, [-1, powers + 1, n]), len(Moments._fields)))
    variance = found.m2 / tf.maximum(found.count, 1.0)
    # psi grows with x: its extremes are those of x.
    reach = tf.stack([statistics.minimum, statistics.maximum])
    reach = tf.where(tf.math.is_finite(reach), reach, tf.zeros_like(reach))
    ends = yeo_johnson(reach[:, tf.newaxis, :], tf.constant(GRID[:, np.newaxis]))
    likelihood = _likelihood(variance[:-1], tf.reduce_max(tf.abs(ends), axis=0), found.mean[-1])
    known = tf.reduce_any(tf.math.is_finite(likelihood), axis=0)
    best = tf.argmax(likelihood, axis=0, output_type=tf.int32)
    best = tf.where(tf.logical_and(known, statistics.varies), best, _ITSELF)
    at = tf.stack([best, tf.range(n)], axis=1)
    itself = tf.equal(best, _ITSELF)  # x: its own moments, without a logarithm and back
    return Powers(
        tf.gather(tf.constant(GRID), best),
        tf.where(itself, statistics.mean, tf.gather_nd(found.mean, at)),
        tf.where(itself, statistics.variance, tf.gather_nd(variance, at)),
    )


def _batch(x: tf.Tensor) -> tf.Tensor:
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
        tf.constant(GRID),
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
    value = -tf.math.log(safe) + (GRID[:, np.newaxis] - 1.0) * logs
    return tf.where(usable, value, tf.fill(tf.shape(value), np.float64(-np.inf)))
