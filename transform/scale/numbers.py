"""The chain of the scaled columns: clip -> analyze -> clip by quantiles -> impute -> scale.

One analyzer for the statistics of all columns, one for medians and quantiles where any column wants
them, one for most frequent values, one per column of keys.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from transform.analyzers.fitted import keep
from transform.analyzers.order import OrderStatistics, order_statistics, wants_quantiles
from transform.analyzers.per_key import KeyedMoments, moments_of_keys, z_score
from transform.analyzers.statistics import ColumnStatistics, column_statistics
from transform.columns.block import Block
from transform.columns.inputs import DenseColumns
from transform.resolve.output_columns import INDICATOR_SUFFIX, ResolvedGroup
from transform.scale.impute import clip, fill_values, limit
from transform.scale.scalers import scale
from transform.spec.group import Group
from transform.spec.scalers import ScaleByKey


def scaled(groups: Sequence[ResolvedGroup], columns: DenseColumns) -> list[Block]:
    """Scaled columns, and after them the missing indicators of the groups that want them."""
    if not groups:
        return []
    names = tuple(name for resolved in groups for name in resolved.columns)
    owners = [resolved.group for resolved in groups for _ in resolved.columns]
    analyzed = clip(columns.numbers(names), [group.clip for group in owners])
    missing = tf.math.is_nan(analyzed)
    statistics = column_statistics(analyzed)
    order = _kept_order(order_statistics(analyzed, owners), owners, names)
    filling = keep(fill_values(analyzed, owners, statistics, order), "filling", names)
    x = analyzed
    if any(group.clips_by_quantiles for group in owners):
        x = limit(x, order.low, order.high)
        statistics = statistics.limited(order.low, order.high)
    statistics = ColumnStatistics(*tf.unstack(keep(tf.stack(statistics), "statistics", names)))
    filled = tf.where(missing, filling, x)
    result = scale(filled, [group.kind for group in owners], statistics, order)
    result = _scaled_by_key(result, analyzed, filled, owners, names, columns)
    blocks = [Block(names, to_float32(result), names, missing, (None,) * len(names))]
    marked = [i for i, group in enumerate(owners) if group.missing_indicator]
    if marked:
        sources = tuple(names[i] for i in marked)
        bits = missing if len(marked) == len(names) else tf.gather(missing, marked, axis=1)
        indicators = tuple(source + INDICATOR_SUFFIX for source in sources)
        values = tf.cast(bits, tf.float32)
        blocks.append(Block(indicators, values, sources, bits, (None,) * len(marked)))
    return blocks


def _kept_order(
    order: OrderStatistics, owners: Sequence[Group], names: Sequence[str]
) -> OrderStatistics:
    """`order` under the names of the columns."""
    if not any(wants_quantiles(group) for group in owners):
        return order
    quantiles = order.quantiles
    vectors = tf.unstack(keep(tf.stack(order[:-1]), "order", names), 5)
    if quantiles is not None:
        gaussian = [n for n, group in zip(names, owners, strict=True) if group.kind == "gaussian"]
        quantiles = keep(quantiles, "quantiles", gaussian)
    return OrderStatistics(*vectors, quantiles=quantiles)


def _scaled_by_key(
    result: tf.Tensor,
    x: tf.Tensor,
    filled: tf.Tensor,
    owners: Sequence[Group],
    names: Sequence[str],
    columns: DenseColumns,
) -> tf.Tensor:
    """`result` with the columns in their place that are scaled per key.

    `x` is not clipped by learned bounds, which no such column has: moments of what another
    analyzer's result changed would take a second phase.
    """
    by: dict[str, list[int]] = {}
    for i, group in enumerate(owners):
        if group.by is not None:
            by.setdefault(group.by, []).append(i)
    order = np.arange(len(owners))
    parts = [result]
    end = len(owners)
    for key, members in by.items():
        part = tf.gather(x, members, axis=1)
        moments = _moments(
            part, key, [owners[i] for i in members], [names[i] for i in members], columns
        )
        by_mean = [owners[i].filling == "mean" for i in members]
        missing = tf.logical_and(tf.math.is_nan(part), by_mean)
        own = tf.where(missing, moments.mean, tf.gather(filled, members, axis=1))
        parts.append(z_score(own, moments))
        order[members] = np.arange(end, end + len(members))
        end += len(members)
    return tf.gather(tf.concat(parts, axis=1), order, axis=1) if by else result


def _moments(
    x: tf.Tensor, key: str, groups: Sequence[Group], names: Sequence[str], columns: DenseColumns
) -> KeyedMoments:
    limits = [g.scale.z_score.max_keys for g in groups if isinstance(g.scale, ScaleByKey)]
    where = f"group {groups[0].name!r}: scale.z_score.by={key!r}"
    keys = columns.texts([key])[:, 0]
    return moments_of_keys(x, keys, max_keys=min(limits), where=where, names=names)


def to_float32(x: tf.Tensor) -> tf.Tensor:
    """float64 -> float32; what float32 cannot hold becomes its largest value, never infinite."""
    largest = np.finfo(np.float32).max.astype(np.float64)
    return tf.cast(tf.clip_by_value(x, -largest, largest), tf.float32)
