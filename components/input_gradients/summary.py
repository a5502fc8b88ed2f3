"""The rows' table and summary.json: mean attributions per column, of all rows and of each slice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

SUMMARY_JSON = "summary.json"
# Columns of the table.
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

    def strongest(self, count: int | None = None) -> list[tuple[str, float]]:
        """Return the columns with the largest mean absolute attributions; None: all columns."""
        return sorted(self.mean_absolute.items(), key=lambda item: (-item[1], item[0]))[:count]


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

    def strongest(self, count: int | None = None) -> list[tuple[str, float]]:
        """Return the strongest columns over all rows; see `SliceAttributions.strongest`."""
        return self.slices[0].strongest(count)


def summarize(table: pa.Table, *, split: str, steps: int) -> AttributionSummary:
    """Return the summary of a table of rows."""
    attributions = {
        name.removeprefix(ATTRIBUTION): table[name].to_numpy().astype(np.float64)
        for name in table.column_names
        if name.startswith(ATTRIBUTION)
    }

    def means(column: str | None, value: str | None, chosen: np.ndarray) -> SliceAttributions:
        return SliceAttributions(
            column=column,
            value=value,
            rows=int(chosen.sum()),
            mean_absolute={n: float(np.abs(a[chosen]).mean()) for n, a in attributions.items()},
            mean={n: float(a[chosen].mean()) for n, a in attributions.items()},
        )

    slices = [means(None, None, np.ones(table.num_rows, bool))]
    for name in sorted(name for name in table.column_names if name.startswith(SLICE)):
        values = np.array(table[name].to_pylist(), object)
        order = sorted(Counter(values).items(), key=lambda x: (-x[1], x[0] is None, x[0] or ""))
        slices += [means(name.removeprefix(SLICE), v, values == v) for v, _ in order[:_MOST_VALUES]]
    prediction, baseline, error = (
        table[name].to_numpy() for name in (PREDICTION, BASELINE_PREDICTION, COMPLETENESS_ERROR)
    )
    return AttributionSummary(
        split=split,
        steps=steps,
        mean_prediction=prediction.mean(),
        mean_baseline_prediction=baseline.mean(),
        mean_absolute_change=np.abs(prediction - baseline).mean(),
        mean_absolute_completeness_error=np.abs(error).mean(),
        slices=tuple(slices),
    )
