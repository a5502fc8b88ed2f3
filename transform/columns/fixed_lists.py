"""Lists of numbers of one fixed length: each position is a column, with its own statistics.

    vector [a, b, c]  ->  vector_0 = a, vector_1 = b, vector_2 = c

As `tft.scale_to_z_score(x, elementwise=True)` does. A row without a list lacks every position; NaN
within a list is missing at its position alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from transform.aliases import Columns, ColumnTensor
from transform.columns.inputs import batch_size
from transform.columns.types import ResolvedGroup, positions


def split_lists(
    groups: Sequence[ResolvedGroup], columns: Columns
) -> tuple[tuple[ResolvedGroup, ...], dict[str, ColumnTensor]]:
    """Replace each list by columns of single values.

    Args:
        groups: those with a `length` have columns of lists.
        columns: name -> Tensor, SparseTensor or RaggedTensor.

    Returns:
        The groups, without any `length`, and the columns with those of the positions, float64
        `[batch]`.
    """
    single: list[ResolvedGroup] = []
    known = dict(columns)
    for resolved in groups:
        length = resolved.group.length
        if length is None:
            single.append(resolved)
            continue
        for name in resolved.columns:
            values = _dense(columns[name], name, length, resolved.group.name)
            parts = tf.unstack(values, num=length, axis=1)
            known.update(zip(positions(name, length), parts, strict=True))
        names = [each for name in resolved.columns for each in positions(name, length)]
        group = resolved.group.model_copy(update={"length": None, "columns": tuple(names)})
        single.append(ResolvedGroup(group, tuple(names)))
    return tuple(single), known


def _dense(column: ColumnTensor, name: str, length: int, group: str) -> tf.Tensor:
    """Return float64 `[batch, length]`, NaN where missing.

    Raises:
        ValueError: all rows hold another number of values.
        tf.errors.InvalidArgumentError: (in the graph) a row holds another number of values.
    """
    nan = tf.constant(float("nan"), tf.float64)
    if isinstance(column, tf.Tensor):
        values = column[:, tf.newaxis] if column.shape.rank == 1 else column
        if values.shape[1] not in (None, length):
            raise ValueError(
                f"group {group!r}: column {name!r} holds {values.shape[1]} values in each row, and "
                f"length: {length} takes {length}"
            )
        return tf.ensure_shape(tf.cast(values, tf.float64), [None, length])
    sparse = column.to_sparse() if isinstance(column, tf.RaggedTensor) else column
    rows = batch_size(column)
    row, place = tf.unstack(sparse.indices, num=2, axis=1)
    counts = tf.math.unsorted_segment_sum(tf.ones_like(row), row, rows)
    fits = tf.logical_or(tf.equal(counts, 0), tf.equal(counts, length))
    wrong = tf.boolean_mask(counts, tf.logical_not(fits))
    # The bare operation, as in inputs.py.
    check = tf.raw_ops.Assert(
        condition=tf.reduce_all(fits),
        data=[
            tf.strings.join(
                [
                    f"a row of column {name} (group {group}) holds another number of values than "
                    f"length: {length}, ",
                    tf.strings.reduce_join(tf.strings.as_string(wrong[:1])),
                ]
            ),
            "give all rows as many, or none",
        ],
        name="fixed_length",
    )
    with tf.control_dependencies([check]):
        values = tf.cast(sparse.values, tf.float64)
    # A place beyond the length is reported by the check.
    at = tf.stack([row, tf.minimum(place, length - 1)], axis=1)
    return tf.tensor_scatter_nd_update(tf.fill([rows, length], nan), at, values)
