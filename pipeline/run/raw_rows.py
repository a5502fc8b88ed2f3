"""Raw rows as a model's serving signatures take them: typed columns, and tf.Examples of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

    from components.arrow_example_gen.columns import Kind
    from components.arrow_example_gen.csv_numbers import NumberTexts

_EXPECTED = {"int": "a whole number", "float": "a number", "string": "a text"}


class Wrong(NamedTuple):
    """A value that the model cannot take."""

    row: int
    column: str
    value: str
    expected: str


@dataclass(frozen=True)
class ModelRows:
    """The rows of a batch that a model can take, and what is wrong with the others.

    Attributes:
        rows: places in the batch.
        columns: list<int64 | float | binary> by name, one list per row of `rows`.
        wrong: for each other row the first value that does not fit, in their order.
    """

    rows: np.ndarray
    columns: Mapping[str, pa.ListArray]
    wrong: list[Wrong]

    def examples(self) -> list[bytes]:
        """Returns the rows as serialized tf.Examples."""
        import pyarrow as pa
        from tfx_bsl.coders import example_coder

        batch = pa.RecordBatch.from_arrays(list(self.columns.values()), list(self.columns))
        return example_coder.RecordBatchToExamplesEncoder().encode(batch)


def model_rows(batch: pa.RecordBatch, kinds: Mapping[str, Kind], texts: NumberTexts) -> ModelRows:
    """Convert a batch to the types that a model takes.

    Args:
        batch: has every column of `kinds`, as its texts or values.
        kinds: type of each raw column of the model.
        texts: how texts write numbers.
    """
    import pyarrow as pa

    from components.arrow_example_gen.columns import as_lists

    columns, wrong = {}, {}
    for name, kind in kinds.items():
        found = batch[batch.schema.get_field_index(name)]
        if pa.types.is_string(found.type) and kind != "string":
            columns[name], faulty = texts.numbers(name, found, kind)
        else:
            columns[name], faulty = _as_kind(found, kind)
        for row in faulty:
            value = str(found[row].as_py())
            wrong.setdefault(row, Wrong(row, name, value, _EXPECTED[kind]))
    rows = np.setdiff1d(np.arange(batch.num_rows), list(wrong))
    taken = pa.array(rows)
    lists = {name: as_lists(columns[name].take(taken), kind) for name, kind in kinds.items()}
    return ModelRows(rows, lists, [wrong[row] for row in sorted(wrong)])


def _as_kind(column: pa.Array, kind: Kind) -> tuple[pa.Array, list[int]]:
    """A column as the model takes it, and the rows whose value it cannot take."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as types

    from components.arrow_example_gen.columns import as_lists

    if types.is_floating(column.type) and kind == "int":
        missing = pc.or_(pc.is_null(column), pc.fill_null(pc.is_nan(column), True))
        values = pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False)
        held = missing.to_numpy(zero_copy_only=False)
        with np.errstate(invalid="ignore"):
            faulty = ~held & ~((values == np.floor(values)) & (np.abs(values) < 2.0**63))
        whole = np.where(held | faulty, 0, values).astype(np.int64)
        return pa.array(whole, mask=held | faulty), np.flatnonzero(faulty).tolist()
    try:
        as_lists(column, kind)
        return column, []
    except pa.ArrowException:
        faulty = [i for i in range(len(column)) if not _fits(column.slice(i, 1), kind)]
        kept = np.ones(len(column), bool)
        kept[faulty] = False
        return pc.if_else(pa.array(kept), column, pa.nulls(len(column), column.type)), faulty


def _fits(value: pa.Array, kind: Kind) -> bool:
    import pyarrow as pa

    from components.arrow_example_gen.columns import as_lists

    try:
        as_lists(value, kind)
    except pa.ArrowException:
        return False
    return True
