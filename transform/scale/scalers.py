"""Scaling of a `[batch, n]` matrix, every column by its own rule, in float64.

    z_score   (x - mean) / sqrt(variance)          biased variance
    min_max   (x - min) / (max - min)              not clipped: an unseen x may leave [0, 1]
    robust    (x - median) / (upper quartile - lower quartile)
    gaussian  Phi^-1(F(x)), see gaussian.py
    log1p     sign(x) log(1 + |x|)                 log(1 + x) for x >= 0, odd, finite for all x
    none      x

A column that is constant in the analysis data (or has no value at all) gives 0 under z_score,
min_max, robust and gaussian, for unseen values too: nothing was learned about its unit. One whose
quartiles are equal though it varies is divided by max - min under robust. Columns that are scaled
per key are left as they are here: per_key.py scales them.

No difference overflows, so no result is NaN: columns that reach beyond 2^1000 are computed in units
of 4, and z_score takes numbers beyond `statistics.LARGEST` for that one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from transform.analyzers.order import OrderStatistics
from transform.analyzers.statistics import LARGEST, ColumnStatistics
from transform.scale.gaussian import normal_scores


def scale(
    x: tf.Tensor, kinds: Sequence[str], statistics: ColumnStatistics, order: OrderStatistics
) -> tf.Tensor:
    """Scales every column.

    Args:
        x: float64 `[batch, n]`, finite.
        kinds: the rule of each column, `Group.kind`.
        statistics: of the columns, clipped, before imputation.
        order: of the columns, clipped, before imputation.

    Returns:
        float64 `[batch, n]`, finite.
    """
    is_z, is_min_max, is_robust, is_gaussian, is_log = (
        np.asarray([kind == name for kind in kinds])
        for name in ("z_score", "min_max", "robust", "gaussian", "log1p")
    )
    one = tf.ones([len(kinds)], tf.float64)
    zero = tf.zeros_like(one)
    learned = is_z | is_min_max | is_robust | is_gaussian
    varies = statistics.maximum > statistics.minimum
    reach = tf.maximum(tf.abs(statistics.minimum), tf.abs(statistics.maximum))
    far = tf.logical_and(varies, tf.logical_and(learned & ~is_z, reach > 2.0**1000))
    unit = tf.where(far, tf.constant(0.25, tf.float64), one)  # a power of two: nothing is rounded
    x = tf.clip_by_value(x * unit, *(np.where(is_z, s * LARGEST, s * np.inf) for s in (-1, 1)))
    low, high = statistics.minimum * unit, statistics.maximum * unit
    spread = tf.where(is_z, tf.sqrt(statistics.variance), high - low)
    center = tf.where(is_z, statistics.mean, tf.where(is_min_max, low, zero))
    if is_robust.any():
        quartiles = order.upper_quartile * unit - order.lower_quartile * unit
        spread = tf.where(tf.logical_and(is_robust, quartiles > 0), quartiles, spread)
        center = tf.where(is_robust, order.median * unit, center)
    usable = tf.logical_and(varies, spread > 0)
    center = tf.where(tf.logical_and(learned, tf.logical_not(usable)), zero, center)
    divisor = tf.where(tf.logical_and(learned, usable), spread, one)
    scaled = (x - center) / divisor
    if is_gaussian.any():
        assert order.quantiles is not None
        members = np.flatnonzero(is_gaussian)
        quantiles = order.quantiles * tf.gather(unit, members)[:, tf.newaxis]
        scores = normal_scores(tf.gather(x, members, axis=1), quantiles)
        place = np.maximum(np.cumsum(is_gaussian) - 1, 0)  # an unwanted one is never taken
        scaled = tf.where(is_gaussian, tf.gather(scores, place, axis=1), scaled)
    scaled = tf.where(tf.logical_and(learned, tf.logical_not(usable)), zero, scaled)
    if is_log.any():
        scaled = tf.where(is_log, tf.sign(x) * tf.math.log1p(tf.abs(x)), scaled)
    return scaled
