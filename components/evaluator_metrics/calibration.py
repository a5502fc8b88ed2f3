"""How far probabilities can be believed, as a metric of TFMA.

Rows are put into bins of equal width by their probability p of what is predicted: of class 1 of a
binary label, of the largest class of several. In each bin the mean of p stands beside the share of
rows in which it came so (Σ w, Σ w p, Σ w y: sums, so any parts merge to those of all rows).

    expected calibration error = Σ_b (W_b / W) |mean p in b - share in b|

C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger, "On Calibration of Modern Neural Networks" (2017), (3);
10 bins where they take 15.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from tensorflow_model_analysis.metrics import metric_types

from components.evaluator_metrics.row_computations import Key, SumCombiner, row_computations

NAME = "calibration_error"
_BINS = 10


class _Bins(NamedTuple):
    """Of some rows; float64 `[BINS]` each, from probability 0 to 1."""

    weight: np.ndarray  # Σ w
    predicted: np.ndarray  # Σ w p
    observed: np.ndarray  # Σ w y

    @property
    def error(self) -> float:
        """The expected calibration error; NaN where there are no rows."""
        total = float(self.weight.sum())
        apart = np.abs(self.predicted - self.observed)  # W_b |mean p - share|
        return float(apart.sum() / total) if total > 0.0 else math.nan


def _bins_of(labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray) -> _Bins:
    """Return the bins of some rows. A label that is missing (NaN) makes its bin NaN.

    `labels` are 0 or 1, or a class; `predictions` `[rows, 1]`, of class 1, or `[rows, classes]`.
    """
    p = np.asarray(predictions, np.float64)
    if p.shape[1] > 1:
        came = np.asarray(labels == p.argmax(axis=1), np.float64)
        p = p.max(axis=1)
    else:
        came, p = np.asarray(labels, np.float64), p[:, 0]
    w = np.asarray(weights, np.float64)
    counted = w > 0.0
    came, p, w = came[counted], p[counted], w[counted]
    at = np.clip(np.nan_to_num(p * _BINS), 0, _BINS - 1).astype(np.int64)
    return _Bins(*(np.bincount(at, each, _BINS) for each in (w, w * p, w * came)))


class CalibrationError(metric_types.Metric):
    """The expected calibration error, and beside it the bins as `calibration_bins`.

    These are an array `[3, BINS]` of float64: the fields of `Bins`.
    """

    def __init__(self, name: str = NAME):
        super().__init__(row_computations(NAME, _Combiner), name=name)


metric_types.register_metric(CalibrationError)


class _Combiner(SumCombiner):
    details = "calibration_bins"
    shape = (3, _BINS)

    def add_rows(
        self, accumulator: np.ndarray, labels: np.ndarray, predictions: np.ndarray, weights: Any
    ) -> np.ndarray:
        return accumulator + np.stack(_bins_of(labels, predictions, weights))

    def extract_output(self, accumulator: np.ndarray) -> dict[Key | None, Any]:
        return {self.key: _Bins(*accumulator).error, self.beside: accumulator}
