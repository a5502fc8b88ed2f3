"""Raw columns of any storage -> one dense matrix per use, with missing marked.

TFT hands over `[batch, 1]` or `[batch]` Tensors where the schema promises a value in every row,
and SparseTensors elsewhere. All columns of one use are stacked together, with a number of graph
nodes per column that does not depend on what is done with them later:

- numbers: float64 `[batch, n]`, NaN where missing (absent, NaN, +-inf);
- texts: string `[batch, n]`, empty where missing (absent or empty).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from transform.spec import ColumnType


def tensor_type(tensor: Any) -> ColumnType | str:
    """The type of a raw or derived column; other than a `ColumnType`: why it cannot be used."""
    if not isinstance(tensor, tf.Tensor | tf.SparseTensor | tf.RaggedTensor):
        return f"a {type(tensor).__name__} and not a tensor"
    shape = tensor.shape
    width = shape[1] if shape.rank == 2 else 1
    if shape.rank not in (1, 2) or (isinstance(tensor, tf.Tensor) and width not in (None, 1)):
        return f"a column of shape {shape}, more than one value per row"
    if tensor.dtype == tf.string:
        return "string"
    if tensor.dtype.is_floating:
        return "float"
    if tensor.dtype.is_integer or tensor.dtype == tf.bool:
        return "int"
    return f"a column of dtype {tensor.dtype.name}"


def batch_size(tensor: Any) -> tf.Tensor:
    """Number of rows, an int64 scalar."""
    if isinstance(tensor, tf.SparseTensor):
        return tf.cast(tensor.dense_shape[0], tf.int64)
    if isinstance(tensor, tf.RaggedTensor):
        return tf.cast(tensor.nrows(), tf.int64)
    return tf.shape(tensor, out_type=tf.int64)[0]


def dense_numbers(column: Any, name: str = "column") -> tf.Tensor:
    """One float, int or bool column of any storage as a vector; for `derive` functions.

    Args:
        column: Tensor `[batch]` or `[batch, 1]`, SparseTensor or RaggedTensor.
        name: what an error calls it.

    Returns:
        float64 `[batch]`, NaN where missing (absent, NaN, +-inf).
    """
    return stack_numbers({name: column}, [name])[:, 0]


def dense_texts(column: Any, name: str = "column") -> tf.Tensor:
    """One string or int column of any storage as a vector, empty where missing."""
    return stack_texts({name: column}, [name])[:, 0]


def stack_numbers(columns: Mapping[str, Any], names: Sequence[str]) -> tf.Tensor:
    """Stacks float, int and bool columns.

    Args:
        columns: name -> Tensor, SparseTensor or RaggedTensor.
        names: at least one name of `columns`.

    Returns:
        float64 `[batch, len(names)]`, NaN where a value is missing.

    Raises:
        tf.errors.InvalidArgumentError: (in the graph) a row holds several values of a column.
    """
    nan = tf.constant(float("nan"), tf.float64)
    stacked = _stack(columns, names, lambda values: tf.cast(values, tf.float64), nan)
    return tf.where(tf.math.is_finite(stacked), stacked, nan)


def stack_texts(columns: Mapping[str, Any], names: Sequence[str]) -> tf.Tensor:
    """Stacks string and int columns, ints as decimal text; see `stack_numbers`."""

    def as_text(values: tf.Tensor) -> tf.Tensor:
        return values if values.dtype == tf.string else tf.strings.as_string(values)

    return _stack(columns, names, as_text, tf.constant(""))


def _stack(
    columns: Mapping[str, Any], names: Sequence[str], convert: Any, default: tf.Tensor
) -> tf.Tensor:
    """One matrix from columns of mixed storage: one concat and one conversion per storage."""
    rows = batch_size(columns[names[0]])
    groups: dict[tuple[str, tf.DType], list[str]] = {}
    for name in names:
        tensor = columns[name]
        storage = "dense" if isinstance(tensor, tf.Tensor) else "sparse"
        if storage == "dense" and tensor.shape.rank == 1:
            storage = "vector"
        groups.setdefault((storage, tensor.dtype), []).append(name)

    blocks, order = [], []
    for (storage, _), members in groups.items():
        tensors = [columns[name] for name in members]
        if storage == "vector":
            blocks.append(convert(tf.stack(tensors, axis=1)))
        elif storage == "dense":
            blocks.append(convert(tf.concat(tensors, axis=1)))
        else:
            blocks.append(_densify(tensors, members, rows, convert, default))
        order += members
    stacked = blocks[0] if len(blocks) == 1 else tf.concat(blocks, axis=1)
    if order != list(names):
        index = {name: i for i, name in enumerate(order)}
        stacked = tf.gather(stacked, [index[name] for name in names], axis=1)
    return tf.ensure_shape(stacked, [None, len(names)])


def _densify(
    tensors: Sequence[Any], names: Sequence[str], rows: tf.Tensor, convert: Any, default: tf.Tensor
) -> tf.Tensor:
    """Scatters all sparse columns into `[rows, n]` at once."""
    sparse = [t.to_sparse() if isinstance(t, tf.RaggedTensor) else t for t in tensors]
    n = len(sparse)
    counts = tf.stack([tf.size(t.values, out_type=tf.int64) for t in sparse])
    indices = tf.concat([t.indices for t in sparse], axis=0)  # [values, 2]
    column = tf.repeat(tf.range(n, dtype=tf.int64), counts)
    check = _refuse_multivalued(indices, column, names)
    with tf.control_dependencies([check]):
        values = convert(tf.concat([t.values for t in sparse], axis=0))
    flat = tf.tensor_scatter_nd_update(
        tf.fill([rows * n], default), (indices[:, 0] * n + column)[:, tf.newaxis], values
    )
    return tf.reshape(flat, [rows, n])


def _refuse_multivalued(
    indices: tf.Tensor, column: tf.Tensor, names: Sequence[str]
) -> tf.Operation | None:
    second = indices[:, 1] > 0
    ids, _ = tf.unique(tf.boolean_mask(column, second))
    found = tf.strings.reduce_join(tf.gather(tf.constant(list(names)), ids), separator=", ")
    return tf.debugging.Assert(
        tf.logical_not(tf.reduce_any(second)),
        [
            tf.strings.join(["more than one value in a row of column ", found]),
            "a group takes single values: derive columns from it, or remove it from the groups",
        ],
        name="single_valued",
    )
