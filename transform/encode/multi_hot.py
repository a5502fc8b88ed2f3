"""encode: multi_hot. 0/1 columns of a column with any number of values in a row, in any order.

<column>=<value>    1 where the row holds the value, listed or learned
<column>_other      1 where it holds any other one
<column>_missing    1 where it holds none

While the analysis runs, a learned value is known by its rank alone: `<column>#0` is the most
frequent one. `FeatureLayout.from_transform_graph` gives it its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shared_core.feature_layout import Column
from transform.aliases import ColumnTensor, Explanation
from transform.block import Block, Entry
from transform.columns.types import INDICATOR_SUFFIX, OTHER_SUFFIX
from transform.encode.encoder import Encoder, Inputs, Known, Members
from transform.spec.encoders import MultiHot

if TYPE_CHECKING:
    import tensorflow as tf

    from transform.analyzers.fitted_column import FittedColumn


def _apply(inputs: Inputs, members: Members) -> list[Block]:
    """Return one block per column: float32 0 and 1, `[batch, values + 2]`."""
    return [
        _block(inputs.raw[name], name, option, inputs.files.get(name, ""))
        for name, option in zip(members.names, members.options, strict=True)
    ]


def _block(column: ColumnTensor, name: str, option: MultiHot, file: str) -> Block:
    import tensorflow as tf

    from transform.columns.inputs import batch_size
    from transform.encode.lookup import lookup

    texts, row = _values(column)
    rows = batch_size(column)
    endings = _endings(option)
    n = len(endings) - 1
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
    values = tf.concat([held, tf.cast(missing, tf.float32)], axis=1)
    return Block(
        names=tuple(name + ending for ending in (*endings, INDICATOR_SUFFIX)),
        values=tf.ensure_shape(values, [None, n + 2]),
        sources=(name,) * (n + 2),
        missing=tf.tile(missing, [1, n + 2]),
        sizes=(None,) * (n + 2),
        entries=(*entries, None, None),
    )


def _values(column: ColumnTensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return all texts of a column that are not missing, and the row of each; `[values]` both."""
    import tensorflow as tf

    from transform.columns.inputs import as_text

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


def _endings(option: MultiHot) -> list[str]:
    """Return `=value` of a listed value, `#rank` of a learned one, which the layout names later."""
    if option.values is not None:
        return [*(f"={value}" for value in option.values), OTHER_SUFFIX]
    return [*(f"#{rank}" for rank in range(option.top_k or 0)), OTHER_SUFFIX]


def _explain(option: MultiHot, columns: Sequence[Column], fitted: FittedColumn) -> Explanation:
    if option.values is not None:
        return {}
    learned = [column for column in columns if column.entry is not None]
    return {"values": [column.name.removeprefix(f"{column.source}=") for column in learned]}


ENCODER = Encoder(
    name="multi_hot",
    takes={"string": "", "int": ""},
    reads="lists",
    apply=_apply,
    endings=_endings,
    has_indicator=True,
    names_file=True,
    known=lambda option: Known(top_k=option.top_k, values=option.values or ()),
    explain=_explain,
    is_aspect=True,
)
