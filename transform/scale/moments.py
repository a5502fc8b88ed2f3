"""Scalers by moments and extremes, over the values that are not missing.

z_score   (x - mean) / sqrt(variance), biased variance; numbers beyond `statistics.LARGEST` count
as that one
min_max   (x - min) / (max - min); not clipped: an unseen x may leave [0, 1]
max_abs   x / max |x|: 0 stays 0, and signs stay; an unseen x may leave [-1, 1]. It is
scikit-learn's MaxAbsScaler, but a constant column is 0, as under every scaler that
learns
{z_score: {by: column}}   each key's rows separately: analyzers/per_key.py
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from transform.block import Explanation
from transform.scale.scaler import (
    EXTREMES,
    MOMENTS,
    ScaledGroup,
    Scaler,
    ToScale,
    ValidationRule,
    explain_unless_constant,
    linear,
    unit_of,
)

if TYPE_CHECKING:
    import tensorflow as tf

    from transform.analyzers.fitted import FittedColumn


def _z_score(columns: ToScale) -> tf.Tensor:
    import tensorflow as tf

    from transform.analyzers.moments import LARGEST

    x = tf.clip_by_value(columns.x, -LARGEST, LARGEST)
    fitted = columns.statistics
    return linear(x, fitted.mean, tf.sqrt(fitted.variance), fitted.varies)


def _explain_z_score(fitted: FittedColumn) -> Explanation:
    assert fitted.statistics is not None
    deviation = math.sqrt(fitted.statistics.variance)
    return {"mean": fitted.statistics.mean, "standard_deviation": deviation}


def _min_max(columns: ToScale) -> tf.Tensor:
    fitted = columns.statistics
    unit = unit_of(fitted)
    low, high = fitted.minimum * unit, fitted.maximum * unit
    return linear(columns.x * unit, low, high - low, fitted.varies)


def _explain_min_max(fitted: FittedColumn) -> Explanation:
    assert fitted.statistics is not None
    return {"min": fitted.statistics.minimum, "max": fitted.statistics.maximum}


def _max_abs(columns: ToScale) -> tf.Tensor:
    import tensorflow as tf

    fitted = columns.statistics
    largest = tf.maximum(tf.abs(fitted.minimum), tf.abs(fitted.maximum))
    return linear(columns.x, tf.zeros_like(largest), largest, fitted.varies)


def _explain_max_abs(fitted: FittedColumn) -> Explanation:
    assert fitted.statistics is not None
    return {"max_abs": max(abs(fitted.statistics.minimum), abs(fitted.statistics.maximum))}


def _z_score_by_key(columns: ToScale) -> tf.Tensor:
    import numpy as np
    import tensorflow as tf

    from transform.block import take_columns

    by: dict[str, list[int]] = {}
    for i, group in enumerate(columns.groups):
        assert group.by is not None
        by.setdefault(group.by, []).append(i)
    parts = [_of_one_key(columns, key, members) for key, members in by.items()]
    joined = parts[0] if len(parts) == 1 else tf.concat(parts, axis=1)
    order = [i for members in by.values() for i in members]
    return take_columns(joined, np.argsort(order).tolist())


def _of_one_key(columns: ToScale, key: str, members: list[int]) -> tf.Tensor:
    import tensorflow as tf

    from transform.analyzers.moments import LARGEST, moments_of_keys
    from transform.block import take_columns

    groups = [columns.groups[i] for i in members]
    # Not clipped by learned bounds, which no such column has: moments of what another analyzer's
    # result changed would take a second phase.
    x = take_columns(columns.given, members)
    moments = moments_of_keys(
        x,
        columns.texts([key])[:, 0],
        max_keys=min(group.scale.z_score.max_keys for group in groups),
        where=f"group {groups[0].name!r}: scale.z_score.by={key!r}",
        names=[columns.names[i] for i in members],
    )
    by_mean = [group.filling == "mean" for group in groups]
    missing = tf.logical_and(tf.math.is_nan(x), by_mean)
    x = tf.where(missing, moments.mean, take_columns(columns.x, members))
    return linear(
        tf.clip_by_value(x, -LARGEST, LARGEST), moments.mean, moments.spread, moments.spread > 0
    )


def _explain_z_score_by_key(group: ScaledGroup, fitted: FittedColumn) -> Explanation:
    moments = fitted.moments_of_keys
    assert moments is not None
    means = moments.mean[:-1][moments.count[:-1] > 0]
    count = max(float(moments.count[-1]), 1.0)
    return {
        "by": group.by,
        "keys": len(moments.count) - 1,
        "mean": moments.mean[-1],  # of all rows: what an unseen key is scaled with
        "standard_deviation": math.sqrt(moments.m2[-1] / count),
        "lowest_mean_of_a_key": means.min() if means.size else None,
        "highest_mean_of_a_key": means.max() if means.size else None,
    }


SCALERS = (
    Scaler(
        name="z_score",
        apply=_z_score,
        requires=(MOMENTS,),
        explain=explain_unless_constant(_explain_z_score),
        validation_rule=ValidationRule("z_score"),
        chainable=True,
    ),
    Scaler(
        name="min_max",
        apply=_min_max,
        requires=(EXTREMES,),
        explain=explain_unless_constant(_explain_min_max),
        validation_rule=ValidationRule("min_max"),
        chainable=True,
    ),
    Scaler(
        name="max_abs",
        apply=_max_abs,
        requires=(EXTREMES,),
        explain=explain_unless_constant(_explain_max_abs),
        validation_rule=ValidationRule("max_abs", {"min": (-1.0, None), "max": (None, 1.0)}),
        chainable=True,
    ),
    Scaler(
        name="z_score_by_key",
        apply=_z_score_by_key,
        requires=(MOMENTS,),
        explain=_explain_z_score_by_key,
        validation_rule=ValidationRule("z_score_by_key"),
        has_options=True,
    ),
)
