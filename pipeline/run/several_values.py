"""Find lists in columns of which the model takes one value; only the model knows which."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from pipeline.run.raw_rows import ModelRows, Wrong

if TYPE_CHECKING:
    import pyarrow as pa


def rows_of_several_values(rows: ModelRows, takes: Callable[[ModelRows], bool]) -> list[Wrong]:
    """Return the rows with a list that the model does not take, and the first such column of each.

    Args:
        rows: Rows that the model refuses as a whole.
        takes: Whether the model takes some rows. It is called once for each column with such lists.
    """
    wrong: dict[int, Wrong] = {}
    wide = {name: np.flatnonzero(_lengths(lists) > 1) for name, lists in rows.columns.items()}
    for name, places in wide.items():
        if not len(places):
            continue
        one = rows.select(np.arange(len(rows.rows)) == places[0])
        others = {
            other: lists if other == name else _first_values(lists)
            for other, lists in one.columns.items()
        }
        if takes(ModelRows(one.rows, others, [])):
            continue
        for place in places.tolist():
            row = int(rows.rows[place])
            values = str(rows.columns[name][place].as_py())
            wrong.setdefault(row, Wrong(row, name, values, "one value"))
    return [wrong[row] for row in sorted(wrong)]


def _lengths(lists: pa.ListArray) -> np.ndarray:
    return np.diff(lists.offsets.to_numpy(zero_copy_only=False))


def _first_values(lists: pa.ListArray) -> pa.ListArray:
    import pyarrow as pa

    return pa.array([values[:1] for values in lists.to_pylist()], lists.type)
