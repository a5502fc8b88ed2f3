"""Counts of both classes by predicted probability, as a metric of TFMA.

From them follow the confusion matrix at each of `EDGES`, and with it the ROC curve, the curve of
precision and recall and their areas. They are sums, so any parts merge to those of all rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tensorflow_model_analysis.metrics import metric_types

from components.evaluator_metrics.row_computations import SumCombiner, row_computations

NAME = "score_histogram"

# Even steps for readers of a threshold, and smaller ones near 0 and 1, where all rows may be if one
# class is rare.
_NEAR = np.array([float(f"{each:.3g}") for each in 10.0 ** np.arange(-6, -2, 1 / 12)])
EDGES = np.unique(np.round(np.r_[np.linspace(0, 1, 101), _NEAR, 1 - _NEAR], 9))
"""Thresholds, from 0 to 1. Bin i holds the rows with EDGES[i - 1] < p <= EDGES[i]."""

BINS = len(EDGES) + 1


def _histogram_of(labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return Σ w of the negative and of the positive rows in each bin, float64 `[2, BINS]`.

    `labels` are 0 or 1; a fraction counts for both classes, and NaN makes its bin NaN. The last of
    `predictions`, `[rows, outputs]`, is the probability of class 1; NaN makes the last bin NaN.
    """
    p, y = np.asarray(predictions, np.float64)[:, -1], np.asarray(labels, np.float64)
    w = np.where(np.isnan(p), np.nan, np.asarray(weights, np.float64))
    counted = np.asarray(weights) > 0.0
    at = np.searchsorted(EDGES, p[counted])
    y, w = y[counted], w[counted]
    return np.stack([np.bincount(at, each, BINS) for each in (w * (1.0 - y), w * y)])


class ScoreHistogram(metric_types.Metric):
    """The histogram of a binary classifier, an array `[2, BINS]`."""

    def __init__(self, name: str = NAME):
        super().__init__(row_computations(NAME, _Combiner), name=name)


metric_types.register_metric(ScoreHistogram)


class _Combiner(SumCombiner):
    shape = (2, BINS)

    def add_rows(
        self, accumulator: np.ndarray, labels: np.ndarray, predictions: np.ndarray, weights: Any
    ) -> np.ndarray:
        return accumulator + _histogram_of(labels, predictions, weights)
