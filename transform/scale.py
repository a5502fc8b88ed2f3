"""Scaling of a `[batch, n]` matrix, every column by its own rule, in float64.

    z_score   (x - mean) / sqrt(variance)          biased variance
    min_max   (x - min) / (max - min)              not clipped: an unseen x may leave [0, 1]
    log1p     sign(x) log(1 + |x|)                 log(1 + x) for x >= 0, odd, finite for all x
    none      x

A column that is constant in the analysis data (or has no value at all) gives 0 under z_score
and min_max, for unseen values too: nothing was learned about its unit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from transform.spec import Scale
from transform.statistics import ColumnStatistics


def scale(x: tf.Tensor, kinds: Sequence[Scale], statistics: ColumnStatistics) -> tf.Tensor:
    """Scales every column.

    Args:
        x: float64 `[batch, n]`, finite.
        kinds: the rule of each column.
        statistics: of the columns, before imputation.

    Returns:
        float64 `[batch, n]`, finite.
    """
    is_z, is_min_max, is_log = (
        np.asarray([kind == name for kind in kinds]) for name in ("z_score", "min_max", "log1p")
    )
    one = tf.ones([len(kinds)], tf.float64)
    zero = tf.zeros_like(one)
    varies = statistics.maximum > statistics.minimum
    spread = tf.where(is_z, tf.sqrt(statistics.variance), statistics.maximum - statistics.minimum)
    learned = np.logical_or(is_z, is_min_max)
    usable = tf.logical_and(varies, spread > 0)
    center = tf.where(is_z, statistics.mean, tf.where(is_min_max, statistics.minimum, zero))
    center = tf.where(tf.logical_and(learned, tf.logical_not(usable)), zero, center)
    divisor = tf.where(tf.logical_and(learned, usable), spread, one)
    scaled = (x - center) / divisor
    scaled = tf.where(tf.logical_and(learned, tf.logical_not(usable)), zero, scaled)
    if is_log.any():
        scaled = tf.where(is_log, tf.sign(x) * tf.math.log1p(tf.abs(x)), scaled)
    return scaled
