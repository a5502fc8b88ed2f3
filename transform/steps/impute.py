"""Limits of a number, and what a missing one becomes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from transform.aliases import Array
from transform.analyzers.most_frequent import most_frequent
from transform.analyzers.order import OrderStatistics
from transform.analyzers.statistics import FittedStatistics
from transform.scale.pointwise import FUNCTIONS
from transform.spec.group import Group
from transform.spec.scalers import Clip

FILLING = "filling"  # what each column's value of a missing number is kept as


def clip(x: tf.Tensor, bounds: Sequence[Clip | None]) -> tf.Tensor:
    """Limit each column to its absolute bounds; NaN stays NaN.

    Args:
        x: float64 `[batch, n]`.
        bounds: one entry per column.
    """
    if all(b is None or b.quantiles is not None for b in bounds):
        return x
    low = [-np.inf if b is None or b.min is None else b.min for b in bounds]
    high = [np.inf if b is None or b.max is None else b.max for b in bounds]
    return limit(x, np.asarray(low, np.float64), np.asarray(high, np.float64))


def limit(x: tf.Tensor, low: Array, high: Array) -> tf.Tensor:
    """Limit each column of `x`, `[batch, n]`, to `[n]` bounds; NaN stays NaN."""
    return tf.where(tf.math.is_nan(x), x, tf.minimum(tf.maximum(x, low), high))


def fill_values(
    x: tf.Tensor, groups: Sequence[Group], statistics: FittedStatistics, order: OrderStatistics
) -> tf.Tensor:
    """Return what replaces a missing number: a constant, mean, median or most frequent value.

    The most frequent value is clipped by learned bounds after it was found: among clipped values,
    a bound would often be it.

    Args:
        x: float64 `[batch, n]`, clipped by absolute bounds, NaN where a value is missing; of a
            chain its function's values.
        groups: the group of each column.
        statistics: of `x`.
        order: of the clipped columns.

    Returns:
        float64 `[n]`; 0 for what is learned from a column without any value.
    """
    fillings = [group.filling for group in groups]
    fixed = np.asarray([_constant(group) for group in groups], np.float64)
    if not np.isnan(fixed).any():
        return tf.constant(fixed)
    by_median = np.asarray([filling == "median" for filling in fillings])
    learned = tf.where(by_median, order.median, statistics.mean)
    if "most_frequent" in fillings:
        members = [i for i, filling in enumerate(fillings) if filling == "most_frequent"]
        found = most_frequent(tf.gather(x, members, axis=1))
        found = tf.where(tf.math.is_nan(found), tf.zeros_like(found), found)
        found = tf.clip_by_value(found, *(tf.gather(b, members) for b in (order.low, order.high)))
        learned = tf.tensor_scatter_nd_update(learned, [[i] for i in members], found)
    return tf.where(np.isnan(fixed), learned, np.nan_to_num(fixed))


def _constant(group: Group) -> float:
    """Return the given value, of a chain its function's; NaN where it is learned."""
    value = group.filling
    if not isinstance(value, float):
        return np.nan
    return value if group.first is None else FUNCTIONS[group.first].value(value)
