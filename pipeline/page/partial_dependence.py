"""How the mean prediction changes with one raw column, the others as they are.

    partial dependence of column c at value v = mean over rows of f(row with c set to v)

J. H. Friedman, "Greedy Function Approximation: A Gradient Boosting Machine" (2001), section 8.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

    from pipeline.page.sampled_rows import ExportedModel, SampledRows

MOST_ROWS = 500
MOST_VALUES, MOST_TEXTS = 20, 12
_FEWEST_ROWS = 30
_MOST_CELLS = 4_000_000  # columns times values times rows times columns of a row
_MOST_COLUMNS, _FEWEST_COLUMNS = 40, 10
_ENDS = 0.01
"""Share of the values at each end that numbers leave out: outliers would take up the charts."""


@dataclass(frozen=True)
class PartialDependence:
    """The partial dependence of the predictions on a column.

    Attributes:
        column: Name of the raw column.
        is_number: Whether the values are numbers, in order; else texts, the most frequent first.
        values: The values that the column was set to.
        means: Mean prediction at each, float64 `[values, outputs]`; see `ExportedModel.predict`.
        rows: Number of rows that were averaged.
    """

    column: str
    is_number: bool
    values: Sequence[float | str]
    means: np.ndarray
    rows: int

    @property
    def size(self) -> float:
        """The largest change of a mean prediction over the values."""
        return float(np.ptp(self.means, axis=0).max())


def affordable_columns(sample: SampledRows) -> int:
    """Return of how many columns the partial dependence costs little."""
    cells = MOST_VALUES * _FEWEST_ROWS * max(1, sample.rows.num_columns)
    return min(_MOST_COLUMNS, max(_FEWEST_COLUMNS, _MOST_CELLS // cells))


def partial_dependences(sample: SampledRows, columns: Sequence[str]) -> list[PartialDependence]:
    """Return the partial dependence on each column that has one value in a row and two or more.

    Args:
        sample: The rows; the first of them are used, fewer if they have many columns.
        columns: Raw columns of the model.
    """
    cells = len(columns) * MOST_VALUES * max(1, sample.rows.num_columns)
    count = min(MOST_ROWS, max(_FEWEST_ROWS, _MOST_CELLS // max(1, cells)))
    found = (_of_column(sample.model, sample.rows, each, count) for each in columns)
    return [each for each in found if each is not None]


def is_numeric(rows: pa.RecordBatch, column: str) -> bool:
    """Return whether a column of lists, or of values, holds numbers."""
    import pyarrow.types as types

    kind = rows.schema.field(column).type
    kind = kind.value_type if hasattr(kind, "value_type") else kind
    return types.is_integer(kind) or types.is_floating(kind)


def _of_column(
    model: ExportedModel, rows: pa.RecordBatch, column: str, count: int
) -> PartialDependence | None:
    import pyarrow as pa

    place = rows.schema.get_field_index(column)
    if place < 0 or not hasattr(rows.column(place).type, "value_type"):
        return None  # no row of the split has a value
    lists = rows.column(place)
    lengths = np.asarray(lists.value_lengths().fill_null(0))
    if lengths.max(initial=0) != 1:
        return None
    number = is_numeric(rows, column)
    values = _grid(lists.flatten(), number=number)
    if len(values) < 2:
        return None
    first = rows.slice(0, count)
    repeated = pa.array(np.tile(np.arange(first.num_rows), len(values)))
    changed = pa.array(np.repeat(np.arange(len(values)), first.num_rows))
    columns = [each.take(repeated) for each in first.columns]
    items = pa.array(values, lists.type.value_type).take(changed)
    ends = np.arange(len(items) + 1)
    large = pa.types.is_large_list(lists.type)
    columns[place] = (
        pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), items)
        if large
        else pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items)
    )
    predictions = model.predict(pa.RecordBatch.from_arrays(columns, rows.schema.names))
    means = predictions.reshape(len(values), first.num_rows, -1).mean(axis=1)
    shown = [v.decode(errors="replace") if isinstance(v, bytes) else v for v in values]
    return PartialDependence(column, number, shown, means, first.num_rows)


def _grid(values: pa.Array, *, number: bool) -> list:
    """Return the values that a column is set to: quantiles, or the most frequent texts."""
    known = values.drop_null()
    if not number:
        return [value for value, _ in Counter(known.to_pylist()).most_common(MOST_TEXTS)]
    numbers = known.to_numpy(zero_copy_only=False)
    numbers = np.sort(numbers[np.isfinite(numbers)])
    if not len(numbers):
        return []
    distinct = np.unique(numbers)
    if len(distinct) > MOST_VALUES:
        # Values that occur: an id between two ids has no meaning.
        at = np.linspace(_ENDS, 1 - _ENDS, MOST_VALUES) * (len(numbers) - 1)
        distinct = np.unique(numbers[np.round(at).astype(int)])
    return distinct.tolist()
