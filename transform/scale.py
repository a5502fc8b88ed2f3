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
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from transform.gaussian import normal_scores
from transform.order import OrderStatistics
from transform.statistics import ColumnStatistics


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
    varies = statistics.maximum > statistics.minimum
    spread = tf.where(is_z, tf.sqrt(statistics.variance), statistics.maximum - statistics.minimum)
    center = tf.where(is_z, statistics.mean, tf.where(is_min_max, statistics.minimum, zero))
    if is_robust.any():
        quartiles = order.upper_quartile - order.lower_quartile
        spread = tf.where(tf.logical_and(is_robust, quartiles > 0), quartiles, spread)
        center = tf.where(is_robust, order.median, center)
    learned = is_z | is_min_max | is_robust | is_gaussian
    usable = tf.logical_and(varies, spread > 0)
    center = tf.where(tf.logical_and(learned, tf.logical_not(usable)), zero, center)
    divisor = tf.where(tf.logical_and(learned, usable), spread, one)
    scaled = (x - center) / divisor
    if is_gaussian.any():
        assert order.quantiles is not None
        members = np.flatnonzero(is_gaussian)
        scores = normal_scores(tf.gather(x, members, axis=1), order.quantiles)
        place = np.maximum(np.cumsum(is_gaussian) - 1, 0)  # an unwanted one is never taken
        scaled = tf.where(is_gaussian, tf.gather(scores, place, axis=1), scaled)
    scaled = tf.where(tf.logical_and(learned, tf.logical_not(usable)), zero, scaled)
    if is_log.any():
        scaled = tf.where(is_log, tf.sign(x) * tf.math.log1p(tf.abs(x)), scaled)
    return scaled
