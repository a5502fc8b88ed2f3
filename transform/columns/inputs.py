"""Raw columns of any storage -> one dense matrix per use, with missing marked.

TFT hands over `[batch, 1]` or `[batch]` Tensors where the schema promises a value in every row,
and SparseTensors elsewhere. All columns of one use are stacked together, with a number of graph
nodes per column that does not depend on what is done with them later:

- numbers: float64 `[batch, n]`, NaN where missing (absent, NaN, +-inf);
- texts: string `[batch, n]`, empty where missing (absent or empty).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from transform.aliases import Columns, ColumnTensor
from transform.block import take_columns
from transform.columns.types import Multivalued, SeenType
from transform.spec.common import ColumnType


def tensor_type(tensor: ColumnTensor) -> SeenType:
    """Return the type of a raw or derived column.

    A sparse or ragged one counts as single-valued: its rows show it when they run.
    """
    if not isinstance(tensor, tf.Tensor | tf.SparseTensor | tf.RaggedTensor):
        return f"a {type(tensor).__name__} and not a tensor"
    shape = tensor.shape
    kind = _value_type(tensor.dtype)
    if kind is None:
        return f"a column of dtype {tensor.dtype.name}"
    width = shape[1] if shape.rank == 2 else 1
    several = isinstance(tensor, tf.Tensor) and width not in (None, 1)
    if shape.rank in (1, 2) and not several:
        return kind
    described = f"a column of shape {shape}, more than one value per row"
    return Multivalued(kind, described, width) if shape.rank == 2 else described


def _value_type(dtype: tf.DType) -> ColumnType | None:
    if dtype == tf.string:
        return "string"
    if dtype.is_floating:
        return "float"
    return "int" if dtype.is_integer or dtype == tf.bool else None


def batch_size(tensor: ColumnTensor) -> tf.Tensor:
    """Return the number of rows, an int64 scalar."""
    if isinstance(tensor, tf.SparseTensor):
        return tf.cast(tensor.dense_shape[0], tf.int64)
    if isinstance(tensor, tf.RaggedTensor):
        return tf.cast(tensor.nrows(), tf.int64)
    return tf.shape(tensor, out_type=tf.int64)[0]


def dense_numbers(column: ColumnTensor, name: str = "column") -> tf.Tensor:
    """Return one float, int or bool column of any storage as a vector; for `derive` functions.

    Args:
        column: Tensor `[batch]` or `[batch, 1]`, SparseTensor or RaggedTensor.
        name: what an error calls it.

    Returns:
        float64 `[batch]`, NaN where missing (absent, NaN, +-inf).
    """
    return tf.squeeze(stack_numbers({name: column}, [name]), axis=1)


def dense_texts(column: ColumnTensor, name: str = "column") -> tf.Tensor:
    """Return one string or int column of any storage as a vector, empty where missing."""
    return tf.squeeze(stack_texts({name: column}, [name]), axis=1)


def as_text(values: tf.Tensor) -> tf.Tensor:
    """Return string values as they are, ints as decimal text."""
    return values if values.dtype == tf.string else tf.strings.as_string(values)


def stack_numbers(
    columns: Columns, names: Sequence[str], called: Mapping[str, str] | None = None
) -> tf.Tensor:
    """Stack float, int and bool columns.

    Args:
        columns: name -> Tensor, SparseTensor or RaggedTensor.
        names: at least one name of `columns`.
        called: what an error calls a column, where that is more than its name.

    Returns:
        float64 `[batch, len(names)]`, NaN where a value is missing.

    Raises:
        tf.errors.InvalidArgumentError: (in the graph) a row holds several values of a column.
    """
    nan = tf.constant(float("nan"), tf.float64)
    stacked = _stack(columns, names, lambda values: tf.cast(values, tf.float64), nan, called or {})
    return tf.where(tf.math.is_finite(stacked), stacked, nan)


def dense_ints(column: ColumnTensor, name: str, default: int) -> tf.Tensor:
    """Return one int or bool column as int64 `[batch, 1]`, `default` where missing."""
    missing = tf.constant(default, tf.int64)
    return _stack({name: column}, [name], lambda values: tf.cast(values, tf.int64), missing, {})


def stack_texts(
    columns: Columns, names: Sequence[str], called: Mapping[str, str] | None = None
) -> tf.Tensor:
    """Stack string and int columns, ints as decimal text; see `stack_numbers`."""
    return _stack(columns, names, as_text, tf.constant(""), called or {})


class DenseColumns:
    """The columns of all groups, each densified once; every use takes its own from there.

    Label and weight stay outside: TFT leaves out an output at serving when an input that it is
    computed from is absent, and all outputs of one stack are computed from all its inputs.
    """

    def __init__(
        self,
        columns: Columns,
        *,
        numbers: Sequence[str],
        texts: Sequence[str],
        called: Mapping[str, str] | None = None,
    ):
        """Make all columns dense.

        Args:
            columns: name -> Tensor, SparseTensor or RaggedTensor.
            numbers: names for `numbers`, best in the order in which they are asked for.
            texts: names for `texts`; a column may be among both.
            called: what an error calls a column, where that is more than its name.
        """
        self._numbers_at = {name: i for i, name in enumerate(numbers)}
        self._texts_at = {name: i for i, name in enumerate(texts)}
        self._numbers = stack_numbers(columns, numbers, called) if numbers else None
        self._texts = stack_texts(columns, texts, called) if texts else None

    def numbers(self, names: Sequence[str]) -> tf.Tensor:
        """Return float64 `[batch, len(names)]`, NaN where missing."""
        return take_columns(self._numbers, [self._numbers_at[name] for name in names])

    def texts(self, names: Sequence[str]) -> tf.Tensor:
        """Return string `[batch, len(names)]`, empty where missing."""
        return take_columns(self._texts, [self._texts_at[name] for name in names])


def _stack(
    columns: Columns,
    names: Sequence[str],
    convert: Callable[[tf.Tensor], tf.Tensor],
    default: tf.Tensor,
    called: Mapping[str, str],
) -> tf.Tensor:
    """Stack columns of mixed storage, with one concat and one conversion per storage."""
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
            described = [called.get(name, name) for name in members]
            blocks.append(_densify(tensors, described, rows, convert, default))
        order += members
    stacked = blocks[0] if len(blocks) == 1 else tf.concat(blocks, axis=1)
    if order != list(names):
        index = {name: i for i, name in enumerate(order)}
        stacked = tf.gather(stacked, [index[name] for name in names], axis=1)
    return tf.ensure_shape(stacked, [None, len(names)])


def _densify(
    tensors: Sequence[ColumnTensor],
    names: Sequence[str],
    rows: tf.Tensor,
    convert: Callable[[tf.Tensor], tf.Tensor],
    default: tf.Tensor,
) -> tf.Tensor:
    """Scatter all sparse columns into `[rows, n]` at once."""
    sparse = [t.to_sparse() if isinstance(t, tf.RaggedTensor) else t for t in tensors]
    indices = tf.concat([t.indices for t in sparse], axis=0)  # [values, 2]
    row, place = tf.unstack(indices, num=2, axis=1)
    column = tf.zeros_like(row) if len(sparse) == 1 else _column_of_each_value(sparse)
    check = _refuse_multivalued(place > 0, column, names)
    with tf.control_dependencies([check]):
        values = convert(tf.concat([t.values for t in sparse], axis=0))
    target = indices if len(sparse) == 1 else tf.stack([row, column], axis=1)
    return tf.tensor_scatter_nd_update(tf.fill([rows, len(sparse)], default), target, values)


def _column_of_each_value(sparse: Sequence[tf.SparseTensor]) -> tf.Tensor:
    """Return int64 `[values]`: the column of each value.

    tf.repeat(tf.range(n), counts) has 100 nodes and takes as long to trace as the rest.
    The end of a column is the number of values up to and with it, so the column of the k-th value
    is the number of ends <= k.
    """
    counts = tf.stack([tf.size(t.values, out_type=tf.int64) for t in sparse])
    ends = tf.cumsum(counts)[tf.newaxis]
    every = tf.range(tf.reduce_sum(counts))[tf.newaxis]
    column = tf.raw_ops.UpperBound(sorted_inputs=ends, values=every, out_type=tf.int64)
    return tf.squeeze(column, axis=0)


def _refuse_multivalued(second: tf.Tensor, column: tf.Tensor, names: Sequence[str]) -> tf.Operation:
    """Fail in the graph where any of `second`, bool `[values]`, is true, and name its column."""
    ids, _ = tf.unique(tf.gather(column, tf.squeeze(tf.where(second), axis=1)))
    found = tf.strings.reduce_join(tf.gather(tf.constant(list(names)), ids), separator=", ")
    # The bare operation: tf.debugging.Assert wraps it in a tf.cond, which is slow to trace.
    return tf.raw_ops.Assert(
        condition=tf.logical_not(tf.reduce_any(second)),
        data=[
            tf.strings.join(["more than one value in a row of column ", found]),
            "this step takes single values: use encode: multi_hot, derive columns from it, or "
            "remove it from the groups",
        ],
        name="single_valued",
    )
