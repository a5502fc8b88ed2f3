"""Median, quartiles and quantile bounds of the columns that want them, in one analyzer.

Clipping is monotone, so the quantile of the clipped values is the clipped quantile: bounds,
median and quartiles of the clipped values all come from one pass over the values as they are.
Mean and variance of the clipped values do not, which is why `Group` refuses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from transform.analyzers.quantiles import quantiles_at
from transform.spec.group import Group
from transform.spec.scalers import QUANTILE_GRID

_QUARTILES = tuple(QUANTILE_GRID * i // 4 for i in (1, 2, 3))


class OrderStatistics(NamedTuple):
    """Of the values that are not missing, after clipping; float64 `[n]` each.

    Quartiles and median are 0 for a column that has no use for them, or no value.
    """

    low: tf.Tensor  # bound, -inf where the column has no quantile bounds
    high: tf.Tensor
    lower_quartile: tf.Tensor
    median: tf.Tensor
    upper_quartile: tf.Tensor
    quantiles: tf.Tensor | None = (
        None  # [gaussian columns, QUANTILE_GRID + 1]; None: no such column
    )


def order_statistics(x: tf.Tensor, groups: Sequence[Group]) -> OrderStatistics:
    """Analyzes the columns whose groups want quantiles; without such a column, nothing.

    Args:
        x: float64 `[batch, n]`, NaN where a value is missing.
        groups: the group of each column.
    """
    n = len(groups)
    zero = tf.zeros([n], tf.float64)
    low, high = tf.fill([n], np.float64(-np.inf)), tf.fill([n], np.float64(np.inf))
    members = [i for i, group in enumerate(groups) if wants_quantiles(group)]
    if not members:
        return OrderStatistics(low, high, zero, zero, zero, None)
    bounds = {i: _bound_levels(groups[i]) for i in members if groups[i].clips_by_quantiles}
    gaussian = [i for i in members if groups[i].scale == "gaussian"]
    levels = sorted({*_QUARTILES, *(level for pair in bounds.values() for level in pair)})
    if gaussian:
        levels = list(range(QUANTILE_GRID + 1))
    row = {i: k for k, i in enumerate(members)}
    place = {level: k for k, level in enumerate(levels)}
    part = x if len(members) == n else tf.gather(x, members, axis=1)
    found = quantiles_at(part, levels, grid=QUANTILE_GRID)  # [members, levels]

    def spread(columns: Sequence[int], at: Sequence[int], otherwise: tf.Tensor) -> tf.Tensor:
        cells = [[row[i], place[level]] for i, level in zip(columns, at, strict=True)]
        return tf.tensor_scatter_nd_update(
            otherwise, [[i] for i in columns], tf.gather_nd(found, cells)
        )

    if bounds:
        low = spread(list(bounds), [pair[0] for pair in bounds.values()], low)
        high = spread(list(bounds), [pair[1] for pair in bounds.values()], high)
    quartiles = [spread(members, [level] * len(members), zero) for level in _QUARTILES]
    every = None
    if gaussian:
        every = tf.gather(found, [row[i] for i in gaussian])
        every = tf.clip_by_value(
            every, *(tf.gather(bound, gaussian)[:, tf.newaxis] for bound in (low, high))
        )
    lower, median, upper = (tf.clip_by_value(q, low, high) for q in quartiles)
    return OrderStatistics(low, high, lower, median, upper, every)


def wants_quantiles(group: Group) -> bool:
    """Whether a column's median, quartiles or bounds are of use to its group."""
    by_rank = group.scale in ("robust", "gaussian")
    return by_rank or group.filling == "median" or group.clips_by_quantiles


def _bound_levels(group: Group) -> tuple[int, int]:
    assert group.clip is not None
    assert group.clip.quantiles is not None
    low, high = group.clip.quantiles
    return round(low * QUANTILE_GRID), round(high * QUANTILE_GRID)
