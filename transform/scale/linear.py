"""(x - center) / spread, of columns that vary; 0 of those that do not, for unseen values too.

No difference overflows, so no result is NaN: columns that reach beyond 2^1000 are computed in units
of 4.
"""

from __future__ import annotations

import tensorflow as tf

from transform.analyzers.statistics import FittedStatistics


def linear(x: tf.Tensor, center: tf.Tensor, spread: tf.Tensor, varies: tf.Tensor) -> tf.Tensor:
    """Return the formula above, every column by its own numbers.

    Args:
        x: float64 `[batch, n]`, finite.
        center: float64 `[n]`.
        spread: float64 `[n]`, >= 0.
        varies: bool `[n]`.

    Returns:
        float64 `[batch, n]`; 0 where a column does not vary or has no spread.
    """
    usable = tf.logical_and(varies, spread > 0)
    zero, one = tf.zeros_like(spread), tf.ones_like(spread)
    scaled = (x - tf.where(usable, center, zero)) / tf.where(usable, spread, one)
    return tf.where(usable, scaled, zero)


def unit_of(statistics: FittedStatistics) -> tf.Tensor:
    """Return the factor, float64 `[n]`, that keeps the range of a column from overflowing."""
    reach = tf.maximum(tf.abs(statistics.minimum), tf.abs(statistics.maximum))
    far = tf.logical_and(statistics.varies, reach > 2.0**1000)
    # A power of two: nothing is rounded.
    return tf.where(far, tf.constant(0.25, tf.float64), tf.ones_like(reach))
