"""encode: bucketize. Ids 0..buckets-1 by quantile or given bounds, then one for missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from shared_core.feature_layout import Column
from transform.aliases import Explanation
from transform.block import Block, IdCount
from transform.encode.encoder import Encoder, Inputs, Members, number_of_ids
from transform.spec.encoders import Bucketize

if TYPE_CHECKING:
    import tensorflow as tf

    from transform.analyzers.fitted_column import FittedColumn


BOUNDARIES = "boundaries"  # what each column's boundaries are kept as


def _apply(inputs: Inputs, members: Members) -> list[Block]:
    import tensorflow as tf

    from transform.analyzers.fitted import keep
    from transform.analyzers.most_frequent import fill_numbers
    from transform.analyzers.quantiles import quantile_boundaries
    from transform.block import take_columns
    from transform.steps.impute import clip

    names, options = members.names, members.options
    bounds = [each.group.clip for each in members.resolved for _ in each.columns]
    raw = clip(inputs.dense.numbers(names), bounds)
    filled = fill_numbers(raw, members.imputed, names)
    counts = np.asarray([option.count for option in options], np.int64)
    parts, order = [], []
    for option in dict.fromkeys(options):  # one analyzer per number of buckets
        which = [i for i, other in enumerate(options) if other == option]
        if option.boundaries is None:
            boundaries = quantile_boundaries(take_columns(raw, which), option.buckets)
        else:
            boundaries = tf.constant([option.boundaries] * len(which), tf.float64)
        boundaries = keep(boundaries, BOUNDARIES, [names[i] for i in which])
        parts.append(bucket_ids(take_columns(filled, which), boundaries))
        order += which
    ids = parts[0] if len(parts) == 1 else tf.concat(parts, axis=1)
    ids = take_columns(ids, np.argsort(order).tolist())
    ids = tf.where(tf.math.is_nan(filled), counts, ids)
    sizes = tuple(IdCount(int(n) + 1) for n in counts)
    return [Block(names, ids, names, tf.math.is_nan(raw), sizes)]


def bucket_ids(x: tf.Tensor, boundaries: tf.Tensor) -> tf.Tensor:
    """Return the bucket of every value: the number of its column's boundaries that are <= it.

    Args:
        x: float64 `[batch, n]`.
        boundaries: float64 `[n, buckets - 1]`, ascending.

    Returns:
        int64 `[batch, n]`; any id where x is NaN.
    """
    import tensorflow as tf

    finite = tf.where(tf.math.is_nan(x), tf.zeros_like(x), x)
    ids = tf.searchsorted(boundaries, tf.transpose(finite), side="right", out_type=tf.int64)
    return tf.transpose(ids)


def _explain(option: Bucketize, columns: Sequence[Column], fitted: FittedColumn) -> Explanation:
    boundaries = fitted.values.get(BOUNDARIES)
    learned = [] if boundaries is None else boundaries.tolist()
    return {"boundaries": learned, **number_of_ids(option, columns, fitted)}


ENCODER = Encoder(
    name="bucketize",
    takes={"float": "", "int": ""},
    reads="numbers",
    apply=_apply,
    explain=_explain,
)
