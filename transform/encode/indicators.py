"""encode: one_hot. 0/1 columns of listed values, one 1 among them in each row.

<column>=<value>    1 where the column holds the value
<column>_other      1 where it holds another one
<column>_missing    1 where it holds none

With `impute: most_frequent`, a missing value counts as the column's most frequent one.

encode: multi_hot. 0/1 columns of a column with any number of values in a row, in any order.

<column>=<value>    1 where the row holds the value, listed or learned
<column>_other      1 where it holds any other one
<column>_missing    1 where it holds none

While the analysis runs, a learned value is known by its rank alone: `<column>#0` is the most
frequent one. `FeatureLayout.from_transform_graph` gives it its name.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shared_core.feature_layout import Column
from transform.analyzers.fitted import FittedColumn
from transform.block import Block, ColumnTensor, Entry, Explanation, tf
from transform.columns.inputs import as_text, batch_size
from transform.encode.encoder import Encoder, Inputs, Members, explain_nothing
from transform.encode.lookup import lookup
from transform.spec.common import INDICATOR_SUFFIX, OTHER_SUFFIX
from transform.spec.encoders import MultiHot


def _one_hot(inputs: Inputs, members: Members) -> list[Block]:
    from transform.analyzers.counts import fill_texts

    names = members.names
    pairs = [(i, value) for i, option in enumerate(members.options) for value in option.values]
    owner = np.asarray([i for i, _ in pairs])
    raw = inputs.dense.texts(names)
    missing = tf.equal(raw, "")
    texts = fill_texts(raw, members.imputed, names)
    wanted = tf.constant([value for _, value in pairs])
    hit = tf.cast(tf.equal(tf.gather(texts, owner, axis=1), wanted), tf.float32)
    owned = owner[:, np.newaxis] == np.arange(len(names))  # [values, columns]
    known = tf.matmul(hit, owned.astype(np.float32))  # 0 or 1: the values are distinct
    absent = tf.cast(tf.equal(texts, ""), tf.float32)
    block = Block(
        names=(
            *(f"{names[i]}={value}" for i, value in pairs),
            *(name + OTHER_SUFFIX for name in names),
            *(name + INDICATOR_SUFFIX for name in names),
        ),
        values=tf.concat([hit, 1.0 - known - absent, absent], axis=1),
        sources=(*(names[i] for i, _ in pairs), *names, *names),
        missing=tf.concat([tf.gather(missing, owner, axis=1), missing, missing], axis=1),
        sizes=(None,) * (len(pairs) + 2 * len(names)),
    )
    return [block]


ONE_HOT = Encoder(
    name="one_hot",
    takes={"string": "", "int": ""},
    reads="texts",
    apply=_one_hot,
    endings=lambda option: [*(f"={value}" for value in option.values), OTHER_SUFFIX],
    has_indicator=True,
    explain=explain_nothing,
    is_aspect=True,
)


def _multi_hot(inputs: Inputs, members: Members) -> list[Block]:
    """Return one block per column: float32 0 and 1, `[batch, values + 2]`."""
    return [
        _block(inputs.raw[name], name, option, inputs.files.get(name, ""))
        for name, option in zip(members.names, members.options, strict=True)
    ]


def _block(column: ColumnTensor, name: str, option: MultiHot, file: str) -> Block:
    texts, row = _values(column)
    rows = batch_size(column)
    endings = _multi_hot_endings(option)
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


def _multi_hot_endings(option: MultiHot) -> list[str]:
    """Return `=value` of a listed value, `#rank` of a learned one, which the layout names later."""
    if option.values is not None:
        return [*(f"={value}" for value in option.values), OTHER_SUFFIX]
    return [*(f"#{rank}" for rank in range(option.top_k or 0)), OTHER_SUFFIX]


def _explain_multi_hot(
    option: MultiHot, columns: Sequence[Column], fitted: FittedColumn
) -> Explanation:
    if option.values is not None:
        return {}
    learned = [column for column in columns if column.entry is not None]
    return {"values": [column.name.removeprefix(f"{column.source}=") for column in learned]}


MULTI_HOT = Encoder(
    name="multi_hot",
    takes={"string": "", "int": ""},
    reads="lists",
    apply=_multi_hot,
    endings=_multi_hot_endings,
    has_indicator=True,
    names_file=True,
    explain=_explain_multi_hot,
    is_aspect=True,
)
