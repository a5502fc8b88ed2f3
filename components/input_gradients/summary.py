"""summary.json: mean absolute attributions per column, of all rows and of each slice."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

ROWS_FOLDER = "rows"
SUMMARY_JSON = "summary.json"

# Columns of the Parquet files.
PREDICTION = "prediction"
BASELINE_PREDICTION = "baseline_prediction"
COMPLETENESS_ERROR = "completeness_error"
CLASS = "class"
ATTRIBUTION = "attribution."
SLICE = "slice."

_MOST_VALUES = 100


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class SliceAttributions(_Record):
    """The rows with one value of a column, or all rows.

    Attributes:
        column: Column of the examples; None: all rows.
        value: Its value as text; None: rows without a value.
        rows: Number of sampled rows.
        mean_absolute: Column of the features -> mean of the absolute attributions.
        mean: Column of the features -> mean of the attributions, whose sign says in which direction
            the column moves the prediction.
    """

    column: str | None = None
    value: str | None = None
    rows: int
    mean_absolute: Mapping[str, float]
    mean: Mapping[str, float]


class AttributionSummary(_Record):
    """The content of summary.json.

    Attributes:
        version: Version of the format.
        split: Split of the examples.
        steps: Points of the path integral.
        mean_prediction: Mean over the sampled rows.
        mean_baseline_prediction: Mean of the predictions for the baseline.
        mean_absolute_change: Mean of |prediction - baseline prediction|.
        mean_absolute_completeness_error: Mean of what a row's attributions miss of its change.
        slices: All rows first, then the 100 most frequent values of each column of `slices`.
    """

    version: int = 1
    split: str
    steps: int
    mean_prediction: float
    mean_baseline_prediction: float
    mean_absolute_change: float
    mean_absolute_completeness_error: float
    slices: tuple[SliceAttributions, ...]

    def strongest(self, count: int) -> list[tuple[str, float]]:
        """Return the columns with the largest mean absolute attributions over all rows."""
        found = self.slices[0].mean_absolute.items()
        return sorted(found, key=lambda item: (-item[1], item[0]))[:count]


def summarize(tables: Iterable[pa.Table], *, split: str, steps: int) -> AttributionSummary:
    """Return the summary of the Parquet files' tables, of which one is in memory at a time.

    Raises:
        ValueError: There is no table.
    """
    names: list[str] = []
    rows: Counter[tuple[str | None, str | None]] = Counter()
    sums: dict[tuple[str | None, str | None], np.ndarray] = defaultdict(lambda: np.zeros(()))
    totals = np.zeros(4)
    for table in tables:
        names = [name for name in table.column_names if name.startswith(ATTRIBUTION)]
        values = np.stack([table[name].to_numpy().astype(np.float64) for name in names], axis=1)
        both = np.stack([np.abs(values), values])
        prediction, baseline, error = (
            table[name].to_numpy() for name in (PREDICTION, BASELINE_PREDICTION, COMPLETENESS_ERROR)
        )
        changes = np.abs(prediction - baseline), np.abs(error)
        totals += [each.sum() for each in (prediction, baseline, *changes)]
        rows[None, None] += table.num_rows
        sums[None, None] = sums[None, None] + both.sum(axis=1)
        for column in table.column_names:
            if column.startswith(SLICE):
                found = np.array(table[column].to_pylist(), object)
                for value in set(found.tolist()):
                    key = column.removeprefix(SLICE), value
                    chosen = found == value
                    rows[key] += int(chosen.sum())
                    sums[key] = sums[key] + both[:, chosen].sum(axis=1)
    if not names:
        raise ValueError("InputGradients: no attributions were written.")
    means = totals / rows[None, None]
    columns = [name.removeprefix(ATTRIBUTION) for name in names]
    return AttributionSummary(
        split=split,
        steps=steps,
        mean_prediction=means[0],
        mean_baseline_prediction=means[1],
        mean_absolute_change=means[2],
        mean_absolute_completeness_error=means[3],
        slices=tuple(
            SliceAttributions(
                column=key[0],
                value=key[1],
                rows=rows[key],
                mean_absolute=dict(zip(columns, (sums[key][0] / rows[key]).tolist(), strict=True)),
                mean=dict(zip(columns, (sums[key][1] / rows[key]).tolist(), strict=True)),
            )
            for key in _shown(rows)
        ),
    )


def _shown(
    rows: Mapping[tuple[str | None, str | None], int],
) -> list[tuple[str | None, str | None]]:
    """Return the slices to write: all rows, then per column its most frequent values."""
    columns = dict.fromkeys(column for column, _ in rows)
    shown: list[tuple[str | None, str | None]] = []
    for column in sorted(columns, key=lambda name: (name is not None, name or "")):
        values = [key for key in rows if key[0] == column]
        shown += sorted(values, key=lambda key: (-rows[key], key[1] is None, key[1] or ""))[
            :_MOST_VALUES
        ]
    return shown
