"""An Arrow column as tf.Example holds it: a list of int64, float32 or bytes for each row.

    Arrow                                        tf.Example
    integers, bool (0 or 1), duration            int
    floats, decimals                             float
    text, binary                                 string (bytes)
    date, time, timestamp                        string, ISO 8601 (see value_text.py)
    uint64 of which a value is 2^63 or more      string, in decimal (as TFX reads it from CSV)
    a dictionary of these                        its values
    a list of these                              several values in a row
    anything else (struct, map, list of lists)   nothing: the column is left out

Zeros, False and empty texts are values. A missing value is a row without any; one within a list is
NaN or an empty text, which Transform takes as missing, and is left out of a list of ints, which has
no such value: the list gets shorter (`parquet.row_lists` refuses that, `first_hole` looks for it).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from components.arrow_example_gen.value_text import as_text, is_text

Kind = Literal["int", "float", "string"]

Rows: TypeAlias = tuple[np.ndarray, pa.RecordBatch]
"""What files are read as: the place of each row in its file, int64 `[rows]`; rows of `as_batch`."""

_VALUES: dict[Kind, pa.DataType] = {
    "int": pa.int64(),
    "float": pa.float32(),
    "string": pa.binary(),
}


def is_list(kind: pa.DataType) -> bool:
    """Whether a row holds a list."""
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def kind_of(column: pa.DataType) -> Kind | None:
    """Return what tf.Example makes of a column, None where it cannot hold it.

    A uint64 is an int here: only its values show whether they fit.
    """
    if is_list(column):
        column = column.value_type
    if types.is_dictionary(column):
        column = column.value_type
    if types.is_integer(column) or types.is_boolean(column) or types.is_duration(column):
        return "int"
    if types.is_floating(column) or types.is_decimal(column):
        return "float"
    if is_text(column) or types.is_temporal(column):
        return "string"
    return None


def as_lists(column: pa.Array, kind: Kind) -> pa.ListArray:
    """Return the column as `tfx_bsl` encodes it: no missing list, and no missing value in one.

    Args:
        column: an array of a type with this kind, or of uint64 for "string", or of nulls.
        kind: int, float or string.

    Returns:
        `list<int64 | float | binary>`, an empty list where there is no value.
    """
    if types.is_null(column.type):
        return _lists(np.zeros(len(column) + 1, np.int64), pa.array([], _VALUES[kind]))
    if not is_list(column.type):
        column = as_text(column) if kind == "string" else column
        ends = np.cumsum(_valid(column))
        return _lists(np.concatenate([[0], ends]), _converted(column.drop_null(), kind))
    offsets, values = flat_values(column)
    values = as_text(values) if kind == "string" else values
    valid = _valid(values)
    if not valid.all():
        if kind == "int":
            offsets = np.concatenate([[0], np.cumsum(valid)])[offsets]
            return _lists(offsets, _converted(values.drop_null(), kind))
        filled = np.full(len(values), np.nan) if kind == "float" else np.full(len(values), b"")
        known = pa.array(np.cumsum(valid) - 1, mask=~valid)
        taken = _converted(values.drop_null(), kind).take(known)
        missing = pa.array(filled, _VALUES[kind])
        return _lists(offsets, pc.coalesce(taken, missing))
    return _lists(offsets, _converted(values, kind))


def as_batch(
    arrays: Sequence[pa.ListArray], columns: Mapping[str, Kind | None], rows: int
) -> pa.RecordBatch:
    """Return rows as ExampleGen writes them: all columns, sorted by name, as TFXIO expects them.

    Args:
        arrays: the columns with a kind, in the order of `columns`, as `as_lists` returns them.
        columns: name -> kind; one without a kind has a missing list in each row.
        rows: their number.

    Returns:
        Columns `large_list<item: int64 | float | large_binary>`.
    """
    names = [name for name, kind in columns.items() if kind is not None]
    lists = {name: _large(array) for name, array in zip(names, arrays, strict=True)}
    missing = pa.nulls(rows, list_type(None))
    return pa.RecordBatch.from_arrays(
        [lists.get(name, missing) for name in sorted(columns)], sorted(columns)
    )


def list_type(kind: Kind | None) -> pa.DataType:
    """Return the type of a column of `as_batch`."""
    value = _VALUES[kind or "string"]
    return pa.large_list(pa.large_binary() if types.is_binary(value) else value)


def _large(lists: pa.ListArray) -> pa.LargeListArray:
    values = lists.values
    if types.is_binary(values.type):
        values = values.cast(pa.large_binary())
    return pa.LargeListArray.from_arrays(lists.offsets.cast(pa.int64()), values)


def holes(column: pa.Array) -> np.ndarray:
    """Return the rows, by number, with a list of several values of which one is missing.

    Args:
        column: of a list type.
    """
    offsets, values = flat_values(column)
    missing = np.concatenate([[0], np.cumsum(~_valid(values))])[offsets]
    return np.flatnonzero((np.diff(missing) > 0) & (np.diff(offsets) > 1))


def _valid(values: pa.Array) -> np.ndarray:
    return values.is_valid().to_numpy(zero_copy_only=False)


def flat_values(column: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Return where each row's values start, and all of them; a missing list has none."""
    if types.is_fixed_size_list(column.type):  # Arrow 10 neither casts nor flattens missing ones
        column = pa.array(column.to_pylist(), pa.list_(column.type.value_type))
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.cumsum(lengths)]), column.flatten()


def _lists(offsets: np.ndarray, values: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)


def _converted(values: pa.Array, kind: Kind) -> pa.Array:
    """Return values, none of them missing, in tf.Example's type."""
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if kind == "int":
        return values.cast(pa.int64())
    if kind == "float":
        if types.is_float16(values.type):  # Arrow 10 does not cast it
            return pa.array(values.to_numpy(zero_copy_only=False).astype(np.float32))
        if types.is_decimal(values.type):
            values = values.cast(pa.float64())
        return values.cast(pa.float32(), safe=False)  # as a float in a tf.Example: inf beyond 3e38
    if types.is_fixed_size_binary(values.type):
        return pa.array(values.to_pylist(), pa.binary())
    return values.cast(pa.binary())
