"""scale: {z_score: {by: column}}. Each key's rows separately: analyzers/per_key.py."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from transform.aliases import Explanation
from transform.analyzers.statistic import MOMENTS
from transform.scale.scaler import ScaledGroup, Scaler, ToScale, ValidationRule

if TYPE_CHECKING:
    import tensorflow as tf

    from transform.analyzers.fitted_column import FittedColumn


def _apply(columns: ToScale) -> tf.Tensor:
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

    from transform.analyzers.per_key import moments_of_keys, z_score
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
    return z_score(tf.where(missing, moments.mean, take_columns(columns.x, members)), moments)


def _explain(group: ScaledGroup, fitted: FittedColumn) -> Explanation:
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


SCALER = Scaler(
    name="z_score_by_key",
    apply=_apply,
    requires=(MOMENTS,),
    explain=_explain,
    validation_rule=ValidationRule("z_score_by_key"),
    has_options=True,
)
