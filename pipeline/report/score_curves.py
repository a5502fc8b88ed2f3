"""The confusion matrices of a binary classifier at many thresholds, from the Evaluator's histogram.

They count all evaluated rows, by their weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pipeline.common.json_types import JsonValue
from pipeline.config.evaluation import SCORE_HISTOGRAM


@dataclass(frozen=True)
class ThresholdCounts:
    """Confusion matrices; a row is predicted positive if its probability is above the threshold.

    Attributes:
        thresholds: Increasing from 0 to 1, float64 `[thresholds]`.
        true_positives: Σ w of the positive rows above each, float64 `[thresholds]`.
        false_positives: Σ w of the negative rows above each, float64 `[thresholds]`.
        positives: Σ w of the positive rows.
        negatives: Σ w of the negative rows.
    """

    thresholds: np.ndarray
    true_positives: np.ndarray
    false_positives: np.ndarray
    positives: float
    negatives: float

    @property
    def is_defined(self) -> bool:
        """Whether all counts are numbers, and there are rows of both classes."""
        both = np.isfinite(self.positives + self.negatives)
        return bool(both and self.positives > 0 and self.negatives > 0)

    def roc(self) -> tuple[np.ndarray, np.ndarray]:
        """Return false and true positive rates, from (0, 0) to (1, 1), `[thresholds + 2]`."""
        x = np.r_[0.0, self.false_positives[::-1] / self.negatives, 1.0]
        return x, np.r_[0.0, self.true_positives[::-1] / self.positives, 1.0]

    @property
    def auc(self) -> float:
        """The area under the ROC curve, whose points are joined by straight lines."""
        x, y = self.roc()
        return float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2))


def counts_of(metrics: Mapping[str, JsonValue]) -> ThresholdCounts | None:
    """Return the counts in TFMA's metrics of a slice (as JSON); None if it has no histogram."""
    from components.evaluator_metrics.score_histogram import BINS, EDGES

    values = metrics.get(SCORE_HISTOGRAM, {}).get("arrayValue", {}).get("float64Values", [])
    if len(values) != 2 * BINS:
        return None  # an evaluation of another version, or of another kind of label
    numbers = np.array([float(value) for value in values]).reshape(2, BINS)
    # Rows above threshold i are those of the bins after i.
    above = numbers[:, ::-1].cumsum(axis=1)[:, ::-1]
    return ThresholdCounts(
        thresholds=EDGES,
        true_positives=above[1, 1:],
        false_positives=above[0, 1:],
        positives=float(above[1, 0]),
        negatives=float(above[0, 0]),
    )
