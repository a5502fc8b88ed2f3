"""Convert raw rows for a model's serving signatures: typed columns, and tf.Examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

    from components.arrow_example_gen.columns import Kind

_EXPECTED = {"int": "a whole number", "float": "a number", "string": "a text"}


class Wrong(NamedTuple):
    """A value that the model cannot take."""

    row: int
    column: str
    value: str
    expected: str


@dataclass(frozen=True)
class ModelRows:
    """The rows of a batch that a model can take, and errors for the others.

    Attributes:
        rows: Indices in the batch.
        columns: list<int64 | float | binary> by name, one list per row of `rows`.
        wrong: The first invalid value of each other row, in order.
    """

    rows: np.ndarray
    columns: Mapping[str, pa.ListArray]
    wrong: list[Wrong]

    def examples(self) -> list[bytes]:
        """Return the rows as serialized tf.Examples."""
        import pyarrow as pa
        from tfx_bsl.coders import example_coder

        batch = pa.RecordBatch.from_arrays(list(self.columns.values()), list(self.columns))
        return example_coder.RecordBatchToExamplesEncoder().encode(batch)


def model_rows(batch: pa.RecordBatch, kinds: Mapping[str, Kind], decimal: str) -> ModelRows:
    """Convert a batch with every column of `kinds`, as texts or values, to the model's types.

    `decimal` is the mark in numbers of texts.
    """
    import pyarrow as pa

    from components.arrow_example_gen.columns import as_lists

    columns, wrong = {}, {}
    for name, kind in kinds.items():
        found = batch[batch.schema.get_field_index(name)]
        columns[name], faulty = _convert_column(found, kind, decimal)
        for row in faulty:
            value = str(found[row].as_py())
            wrong.setdefault(row, Wrong(row, name, value, _EXPECTED[kind]))
    rows = np.setdiff1d(np.arange(batch.num_rows), list(wrong))
    taken = pa.array(rows)
    lists = {name: as_lists(columns[name].take(taken), kind) for name, kind in kinds.items()}
    return ModelRows(rows, lists, [wrong[row] for row in sorted(wrong)])


def _convert_column(column: pa.Array, kind: Kind, decimal: str) -> tuple[pa.Array, list[int]]:
    """Return a column converted for the model, and the rows whose value it cannot take."""
    import pyarrow as pa

    from components.arrow_example_gen.columns import flat_values, holes, is_list
    from components.arrow_example_gen.csv_types import bools_as_digits, read_numbers

    if is_list(column.type):
        offsets, values = flat_values(column)
        found, places = _convert_column(values, kind, decimal)
        faulty = np.searchsorted(offsets, places, side="right") - 1
        if kind == "int":
            faulty = np.concatenate([faulty, holes(column)])
        lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), found)
        return lists, np.unique(faulty).tolist()
    column = _plain_type(column, kind)
    if pa.types.is_string(column.type) and kind != "string":
        return read_numbers(bools_as_digits(column), kind, decimal)
    return _convert_values(column, kind)


def _convert_values(column: pa.Array, kind: Kind) -> tuple[pa.Array, list[int]]:
    """Return values converted for the model, and the rows whose value it cannot take."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as types

    from components.arrow_example_gen.columns import fits

    if types.is_temporal(column.type) and not types.is_duration(column.type) and kind != "string":
        faulty = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)).tolist()
        return pa.nulls(len(column)), faulty
    if types.is_floating(column.type) and kind == "int":
        missing = pc.or_(pc.is_null(column), pc.fill_null(pc.is_nan(column), True))
        values = pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False)
        held = missing.to_numpy(zero_copy_only=False)
        with np.errstate(invalid="ignore"):
            faulty = ~held & ~((values == np.floor(values)) & (np.abs(values) < 2.0**63))
        whole = np.where(held | faulty, 0, values).astype(np.int64)
        return pa.array(whole, mask=held | faulty), np.flatnonzero(faulty).tolist()
    if fits(column, kind):
        return column, []
    faulty = [i for i in range(len(column)) if not fits(column.slice(i, 1), kind)]
    kept = np.ones(len(column), bool)
    kept[faulty] = False
    return column.take(pa.array(np.arange(len(column)), mask=~kept)), faulty


def _plain_type(column: pa.Array, kind: Kind) -> pa.Array:
    """Return the same values in one of few types; bytes become texts in a column of numbers."""
    import pyarrow as pa
    import pyarrow.types as types

    from components.arrow_example_gen.columns import is_text

    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if types.is_float16(column.type):  # Arrow 10 has few functions for it
        values = column.drop_null().to_numpy(zero_copy_only=False).astype(np.float32)
        places = np.cumsum(column.is_valid().to_numpy(zero_copy_only=False)) - 1
        missing = column.is_null().to_numpy(zero_copy_only=False)
        return pa.array(values).take(pa.array(places, mask=missing))
    if kind == "string" or not is_text(column.type) or types.is_string(column.type):
        return column
    texts = column.to_pylist()
    if not types.is_large_string(column.type):
        texts = [text if text is None else text.decode(errors="replace") for text in texts]
    return pa.array(texts, pa.string())
