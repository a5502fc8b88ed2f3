"""The steps of the scaled columns.

    clip -> a chain's function -> analyze -> clip by quantiles -> impute -> scale

One analyzer for the statistics of all columns, one for medians and quantiles where any column wants
them, one for most frequent values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from shared_core.fitted import Record
from transform.analyzers.counts import most_frequent
from transform.analyzers.fitted import keep, keep_record
from transform.analyzers.moments import STATISTICS, FittedStatistics, column_statistics
from transform.analyzers.quantiles import ORDER, Order, OrderStatistics, Wanted, order_statistics
from transform.block import Array, Block, joined, take_columns
from transform.columns.inputs import DenseColumns
from transform.scale.scaler import QUANTILES, QUARTILES, Statistic, ToScale
from transform.scale.table import FUNCTIONS, SCALERS
from transform.spec.common import INDICATOR_SUFFIX
from transform.spec.group import Clip, Group, ResolvedGroup


def scaled(groups: Sequence[ResolvedGroup], dense: DenseColumns) -> list[Block]:
    """Return scaled columns, and after them the missing indicators of the groups that want them."""
    if not groups:
        return []
    names = tuple(name for resolved in groups for name in resolved.columns)
    owners = tuple(resolved.group for resolved in groups for _ in resolved.columns)
    given = clip(dense.numbers(names), [group.clip for group in owners])
    given = _functions_of(given, owners)
    missing = tf.math.is_nan(given)
    statistics = column_statistics(given)
    learned = _learned(given, owners, names, statistics)
    order = _analyzed_order(given, owners, names)
    low, high = order.statistics.low, order.statistics.high
    filling = keep(_fill_values(given, owners, statistics, order.statistics), FILLING, names)
    x = given
    if any(group.clips_by_quantiles for group in owners):
        x = _limit(x, low, high)
        statistics = statistics.limited(low, high)
    statistics = keep_record(statistics, STATISTICS, names)
    filled = tf.where(missing, filling, x)
    columns = ToScale(filled, statistics, order.statistics, order.quantiles, learned)
    result = _by_scaler(columns, owners)
    # Who explains a column asks for its statistics even where nothing is scaled by them.
    with tf.control_dependencies([statistics.count]):
        # What float32 cannot hold becomes its largest value.
        largest = np.finfo(np.float32).max.astype(np.float64)
        result = tf.cast(tf.clip_by_value(result, -largest, largest), tf.float32)
    blocks = [Block(names, result, names, missing, (None,) * len(names))]
    marked = [i for i, group in enumerate(owners) if group.missing_indicator]
    if marked:
        sources = tuple(names[i] for i in marked)
        bits = take_columns(missing, marked)
        indicators = tuple(source + INDICATOR_SUFFIX for source in sources)
        values = tf.cast(bits, tf.float32)
        blocks.append(Block(indicators, values, sources, bits, (None,) * len(marked)))
    return blocks


def _functions_of(x: tf.Tensor, owners: Sequence[Group]) -> tf.Tensor:
    """Return the columns of a chain by its first function, the others as they are."""
    for name, function in FUNCTIONS.items():
        by_it = np.asarray([group.first == name for group in owners])
        if by_it.all():
            x = function.apply(x)
        elif by_it.any():
            x = tf.where(by_it, function.apply(x), x)
    return x


def _analyzed_order(x: tf.Tensor, owners: Sequence[Group], names: Sequence[str]) -> Order:
    """Order statistics of the columns, kept under their names."""
    wanted = [_wanted_of(group) for group in owners]
    statistics, quantiles = order_statistics(x, wanted)
    if any(map(any, wanted)):
        statistics = keep_record(statistics, ORDER, names)
    if quantiles is not None:
        ranked = [name for name, each in zip(names, wanted, strict=True) if each.quantiles]
        quantiles = keep(quantiles, QUANTILES.name, ranked)
    return Order(statistics, quantiles)


def _learned(
    x: tf.Tensor, owners: Sequence[Group], names: Sequence[str], statistics: FittedStatistics
) -> Mapping[str, Any]:
    """Return what statistics with an analyzer found, kept under the names of their columns."""
    found = {}
    for statistic in dict.fromkeys(s for each in owners for s in SCALERS[each.kind].requires):
        if statistic.analyze is not None:
            at = _members(statistic, owners)
            record = statistic.analyze(take_columns(x, at), _taken(statistics, at))
            found[statistic.name] = keep_record(record, statistic.name, [names[i] for i in at])
    return found


def _members(statistic: Statistic, owners: Sequence[Group]) -> list[int]:
    """Return the places of the columns that require a statistic."""
    return [i for i, each in enumerate(owners) if statistic in SCALERS[each.kind].requires]


def _wanted_of(group: Group) -> Wanted:
    """Return which order statistics the group of a column uses."""
    requires = SCALERS[group.kind].requires
    return Wanted(
        bounds=group.clip.quantiles if group.clip is not None else None,
        quartiles=QUARTILES in requires or group.filling == "median",
        quantiles=QUANTILES in requires,
    )


def _by_scaler(columns: ToScale, owners: Sequence[Group]) -> tf.Tensor:
    """Scale every column by its scaler, those of one scaler together."""
    by_scaler: dict[str, list[int]] = {}
    for i, group in enumerate(owners):
        by_scaler.setdefault(group.kind, []).append(i)
    parts = [
        SCALERS[kind].apply(_part(columns, owners, kind, members))
        for kind, members in by_scaler.items()
    ]
    order = [i for members in by_scaler.values() for i in members]
    return take_columns(joined(parts), np.argsort(order).tolist())


def _part(columns: ToScale, owners: Sequence[Group], kind: str, members: list[int]) -> ToScale:
    """Return the columns of one scaler, with what it requires."""
    requires = SCALERS[kind].requires
    statistics, order, quantiles = columns.statistics, columns.order, None
    if len(members) < len(owners):
        statistics = _taken(statistics, members)
        order = _taken(order, members) if QUARTILES in requires else order
    if QUANTILES in requires:
        ranked = _members(QUANTILES, owners)
        quantiles = columns.quantiles
        if members != ranked:
            quantiles = tf.gather(quantiles, [ranked.index(i) for i in members])
    learned = {}
    for statistic in requires:
        if statistic.analyze is not None:
            analyzed, record = _members(statistic, owners), columns.learned[statistic.name]
            at = [analyzed.index(i) for i in members]
            learned[statistic.name] = record if members == analyzed else _taken(record, at)
    return ToScale(take_columns(columns.x, members), statistics, order, quantiles, learned)


def _taken(record: Record, members: list[int]) -> Record:
    parts = tf.gather(tf.stack(record), members, axis=1)
    return type(record)._make(tf.unstack(parts, len(record)))


FILLING = "filling"  # what each column's value of a missing number is kept as


def clip(x: tf.Tensor, bounds: Sequence[Clip | None]) -> tf.Tensor:
    """Limit each column of `x`, float64 `[batch, n]`, to its absolute bounds; NaN stays NaN."""
    if all(b is None or b.quantiles is not None for b in bounds):
        return x
    low = [-np.inf if b is None or b.min is None else b.min for b in bounds]
    high = [np.inf if b is None or b.max is None else b.max for b in bounds]
    return _limit(x, np.asarray(low, np.float64), np.asarray(high, np.float64))


def _limit(x: tf.Tensor, low: Array, high: Array) -> tf.Tensor:
    """Limit each column of `x`, `[batch, n]`, to `[n]` bounds; NaN stays NaN."""
    return tf.where(tf.math.is_nan(x), x, tf.minimum(tf.maximum(x, low), high))


def _fill_values(
    x: tf.Tensor, groups: Sequence[Group], statistics: FittedStatistics, order: OrderStatistics
) -> tf.Tensor:
    """Return what replaces a missing number: a constant, mean, median or most frequent value.

    The most frequent value is clipped by learned bounds after it was found: among clipped values,
    a bound would often be it.
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
