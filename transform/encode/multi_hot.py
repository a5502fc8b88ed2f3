"""Multi-hot columns of a column with any number of values in a row, in any order.

<column>=<value>    1 where the row holds the value, listed or learned
<column>_other      1 where it holds any other one
<column>_missing    1 where it holds none

While the analysis runs, a learned value is known by its rank alone: `<column>#0` is the most
frequent one. `FeatureLayout.from_transform_graph` gives it its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from transform.columns.block import Block, Entry
from transform.columns.inputs import as_text, batch_size
from transform.encode.ids import lookup
from transform.resolve.output_columns import (
    INDICATOR_SUFFIX,
    OTHER_SUFFIX,
    ResolvedGroup,
    multi_hot_endings,
)
from transform.spec.encoders import MultiHot


def multi_hot(
    columns: Mapping[str, Any], groups: Sequence[ResolvedGroup], files: Mapping[str, str]
) -> list[Block]:
    """Encodes the columns of all groups.

    Args:
        columns: name -> Tensor `[batch]` or `[batch, k]`, SparseTensor or RaggedTensor.
        groups: the groups with `encode: multi_hot`.
        files: file name of each learned vocabulary.

    Returns:
        One block per column: float32 0 and 1, `[batch, values + 2]`.
    """
    blocks = []
    for resolved in groups:
        assert resolved.group.encode is not None
        option = resolved.group.encode.multi_hot
        assert option is not None
        blocks += [_block(columns[n], n, option, files.get(n, "")) for n in resolved.columns]
    return blocks


def _block(column: Any, name: str, option: MultiHot, file: str) -> Block:
    texts, row = _values(column)
    rows = batch_size(column)
    endings = multi_hot_endings(option)
    n = len(endings)
    if option.values is not None:
        hit = tf.equal(texts[:, tf.newaxis], tf.constant(option.values))  # [values, n]
        place = tf.where(tf.reduce_any(hit, axis=1), tf.argmax(tf.cast(hit, tf.int8), axis=1), n)
    else:
        place, _ = lookup(texts, file, top_k=option.top_k, oov_buckets=0)
        place = tf.where(place < 0, tf.constant(n, tf.int64), place)
    held = tf.scatter_nd(
        tf.stack([row, place], axis=1), tf.ones_like(row), tf.stack([rows, n + 1])
    )  # int64 [rows, n + 1]: how often
    held = tf.cast(tf.minimum(held, 1), tf.float32)
    # Of the values, not of what they were looked up as: no other analyzer's result may be counted.
    count = tf.math.unsorted_segment_sum(tf.ones_like(row), row, rows)
    missing = tf.equal(count, 0)[:, tf.newaxis]
    entries = [Entry(file, line) if option.values is None else None for line in range(n)]
    names = (*endings, OTHER_SUFFIX, INDICATOR_SUFFIX)
    values = tf.concat([held, tf.cast(missing, tf.float32)], axis=1)
    return Block(
        names=tuple(name + ending for ending in names),
        values=tf.ensure_shape(values, [None, n + 2]),
        sources=(name,) * (n + 2),
        missing=tf.tile(missing, [1, n + 2]),
        sizes=(None,) * (n + 2),
        entries=(*entries, None, None),
    )


def _values(column: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """All texts of a column that are not missing, and the row of each; `[values]` both."""
    if isinstance(column, tf.RaggedTensor):
        texts, row = as_text(column.values), column.value_rowids()
    elif isinstance(column, tf.SparseTensor):
        texts, row = as_text(column.values), column.indices[:, 0]
    else:
        width = column.shape[1] if column.shape.rank == 2 else 1
        texts = tf.reshape(as_text(column), [-1])
        row = tf.range(tf.size(texts, out_type=tf.int64)) // width
    present = tf.not_equal(texts, "")
    return tf.boolean_mask(texts, present), tf.boolean_mask(row, present)
