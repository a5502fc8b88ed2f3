"""The columns of the rows' table, and summary.json: mean attributions per column."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

SUMMARY_JSON = "summary.json"
PREDICTION, BASELINE_PREDICTION = "prediction", "baseline_prediction"
COMPLETENESS_ERROR = "completeness_error"
ATTRIBUTION = "attribution."


class AttributionSummary(BaseModel):
    """The content of summary.json.

    Attributes:
        version: Version of the format.
        split: Split of the examples.
        steps: Points of the path integral.
        rows: Number of sampled rows.
        mean_prediction: Mean over the sampled rows.
        mean_baseline_prediction: Mean of the predictions for the baseline.
        mean_absolute_change: Mean of |prediction - baseline prediction|.
        mean_absolute_completeness_error: Mean of what a row's attributions miss of its change.
        mean_absolute: Column of the features -> mean of the absolute attributions.
        mean: Column of the features -> mean of the attributions, whose sign says in which direction
            the column moves the prediction.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = 2
    split: str
    steps: int
    rows: int
    mean_prediction: float
    mean_baseline_prediction: float
    mean_absolute_change: float
    mean_absolute_completeness_error: float
    mean_absolute: Mapping[str, float]
    mean: Mapping[str, float]

    def strongest(self, count: int | None = None) -> list[tuple[str, float]]:
        """Return the columns with the largest mean absolute attributions; None: all columns."""
        return sorted(self.mean_absolute.items(), key=lambda item: (-item[1], item[0]))[:count]


def summarize(table: pa.Table, *, split: str, steps: int) -> AttributionSummary:
    """Return the summary of a table of rows."""
    attributions = {
        name.removeprefix(ATTRIBUTION): table[name].to_numpy().astype(np.float64)
        for name in table.column_names
        if name.startswith(ATTRIBUTION)
    }
    prediction, baseline, error = (
        table[name].to_numpy() for name in (PREDICTION, BASELINE_PREDICTION, COMPLETENESS_ERROR)
    )
    return AttributionSummary(
        split=split,
        steps=steps,
        rows=table.num_rows,
        mean_prediction=prediction.mean(),
        mean_baseline_prediction=baseline.mean(),
        mean_absolute_change=np.abs(prediction - baseline).mean(),
        mean_absolute_completeness_error=np.abs(error).mean(),
        mean_absolute={name: float(np.abs(each).mean()) for name, each in attributions.items()},
        mean={name: float(each.mean()) for name, each in attributions.items()},
    )
