"""Raw columns of any storage -> one dense matrix per use, with missing marked.

TFT hands over `[batch, 1]` or `[batch]` Tensors where the schema promises a value in every row,
and SparseTensors elsewhere. All columns of one use are stacked together, with a number of graph
nodes per column that does not depend on what is done with them later:

- numbers: float64 `[batch, n]`, NaN where missing (absent, NaN, +-inf);
- texts: string `[batch, n]`, empty where missing (absent or empty).

Of lists of numbers of one fixed length, each position is a column, with its own statistics.

    vector [a, b, c]  ->  vector_0 = a, vector_1 = b, vector_2 = c

As `tft.scale_to_z_score(x, elementwise=True)` does. A row without a list lacks every position; NaN
within a list is missing at its position alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from transform.block import Columns, ColumnTensor, joined, take_columns, tf
from transform.spec.common import ColumnType, Multivalued, SeenType, positions
from transform.spec.group import ResolvedGroup


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
    """Stack float, int and bool columns: float64 `[batch, n]`, NaN where a value is missing.

    `called` says what an error calls a column, where that is more than its name.

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
        """Make the columns dense that `numbers` and `texts` ask for, best in their order.

        `called` says what an error calls a column, where that is more than its name.
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
    stacked = joined(blocks)
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


def split_lists(
    groups: Sequence[ResolvedGroup], columns: Columns
) -> tuple[tuple[ResolvedGroup, ...], dict[str, ColumnTensor]]:
    """Replace each list of the groups with a `length` by columns of single values.

    Returns the groups, without any `length`, and the columns with those of the positions, float64
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
    """Return float64 `[batch, length]`, NaN where missing."""
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
