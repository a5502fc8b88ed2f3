"""Median, quartiles and quantile bounds of the columns that want them, in one analyzer.

Clipping is monotone, so the quantile of the clipped values is the clipped quantile: bounds,
median and quartiles of the clipped values all come from one pass over the values as they are.
Mean and variance of the clipped values do not, which is why a spec that asks for them is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from transform.analyzers.quantiles import quantiles_at
from transform.analyzers.statistic import QUANTILE_GRID

ORDER = "order"  # what `OrderStatistics` are kept as
_QUARTILES = tuple(QUANTILE_GRID * i // 4 for i in (1, 2, 3))


class Wanted(NamedTuple):
    """What of a column's order is of use.

    Attributes:
        bounds: Levels of the quantiles that it is clipped at, multiples of 1 / `QUANTILE_GRID`.
        quartiles: The median and both quartiles.
        quantiles: All of them, `QUANTILE_GRID` + 1.
    """

    bounds: tuple[float, float] | None = None
    quartiles: bool = False
    quantiles: bool = False


class OrderStatistics(NamedTuple):
    """Of the values that are not missing, after clipping; float64 `[n]` each.

    Quartiles and median are 0 for a column that has no use for them, or no value.
    """

    low: tf.Tensor  # bound, -inf where the column has no quantile bounds
    high: tf.Tensor
    lower_quartile: tf.Tensor
    median: tf.Tensor
    upper_quartile: tf.Tensor


class Order(NamedTuple):
    """What one analyzer of order finds."""

    statistics: OrderStatistics
    quantiles: tf.Tensor | None  # [columns that want them, QUANTILE_GRID + 1]; None: none does


def order_statistics(x: tf.Tensor, wanted: Sequence[Wanted]) -> Order:
    """Analyze the columns that want something, if there are any.

    Args:
        x: float64 `[batch, n]`, NaN where a value is missing.
        wanted: what is wanted of each column.
    """
    n = len(wanted)
    zero = tf.zeros([n], tf.float64)
    low, high = tf.fill([n], np.float64(-np.inf)), tf.fill([n], np.float64(np.inf))
    members = [i for i, each in enumerate(wanted) if any(each)]
    if not members:
        return Order(OrderStatistics(low, high, zero, zero, zero), None)
    bounds = {i: _on_grid(each.bounds) for i, each in enumerate(wanted) if each.bounds is not None}
    ranked = [i for i, each in enumerate(wanted) if each.quantiles]
    levels = sorted({*_QUARTILES, *(level for pair in bounds.values() for level in pair)})
    if ranked:
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
    if ranked:
        every = tf.gather(found, [row[i] for i in ranked])
        every = tf.clip_by_value(
            every, *(tf.gather(bound, ranked)[:, tf.newaxis] for bound in (low, high))
        )
    lower, median, upper = (tf.clip_by_value(q, low, high) for q in quartiles)
    return Order(OrderStatistics(low, high, lower, median, upper), every)


def _on_grid(bounds: tuple[float, float]) -> tuple[int, int]:
    low, high = bounds
    return round(low * QUANTILE_GRID), round(high * QUANTILE_GRID)
