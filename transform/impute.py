"""Limits of a number, and what a missing one becomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from transform.order import OrderStatistics
from transform.spec import Clip, Group
from transform.statistics import ColumnStatistics


def clip(x: tf.Tensor, bounds: Sequence[Clip | None]) -> tf.Tensor:
    """Limits each column to its absolute bounds; NaN stays NaN.

    Args:
        x: float64 `[batch, n]`.
        bounds: one entry per column.
    """
    if all(b is None or b.quantiles is not None for b in bounds):
        return x
    low = [-np.inf if b is None or b.min is None else b.min for b in bounds]
    high = [np.inf if b is None or b.max is None else b.max for b in bounds]
    return limit(x, np.asarray(low, np.float64), np.asarray(high, np.float64))


def limit(x: tf.Tensor, low: Any, high: Any) -> tf.Tensor:
    """Limits each column of `x`, `[batch, n]`, to `[n]` bounds; NaN stays NaN."""
    return tf.where(tf.math.is_nan(x), x, tf.minimum(tf.maximum(x, low), high))


def fill_values(
    groups: Sequence[Group], statistics: ColumnStatistics, order: OrderStatistics
) -> tf.Tensor:
    """The value of a missing number: the group's constant, or mean or median of those present.

    Args:
        groups: the group of each column.
        statistics: of the clipped columns.
        order: of the clipped columns.

    Returns:
        float64 `[n]`; 0 for the mean or median of a column without any value.
    """
    fillings = [group.filling for group in groups]
    constants = [f if isinstance(f, float) else np.nan for f in fillings]
    fixed = np.asarray(constants, np.float64)
    if not np.isnan(fixed).any():
        return tf.constant(fixed)
    by_median = np.asarray([filling == "median" for filling in fillings])
    learned = tf.where(by_median, order.median, statistics.mean)
    return tf.where(np.isnan(fixed), learned, np.nan_to_num(fixed))
