"""Compute metrics of predictions, with the names that the Evaluator uses.

The metrics are Keras metrics in float64, because memory must not grow with the number of rows. AUCs
use 10,000 thresholds, as in TFMA. A metric that is undefined for the rows is None.
"""

from __future__ import annotations

import math

import keras
import numpy as np

from trainer_module.model.model_context import LabelKind
from trainer_module.model.undefined import defined_result

_THRESHOLDS = 10_000


class Scores:
    """Accumulates metrics over batches; row weights may be 0."""

    def __init__(self, kind: LabelKind) -> None:
        """Start without rows.

        Args:
            kind: Kind of the label; it determines the metrics.
        """
        self._kind = kind
        self._metrics = _metrics(kind)
        self._weights = self._sum = self._squares = self._errors = 0.0
        self._origin: float | None = None
        self._valid = True

    def add(self, labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray) -> None:
        """Add rows.

        Args:
            labels: `[rows]`.
            predictions: `[rows, outputs]`; a number, the probability of class 1, or the
                probability of each class.
            weights: `[rows]`.
        """
        usable = np.isfinite(labels)
        if self._kind != "regression":
            classes = max(2, predictions.shape[1])
            usable &= (labels >= 0) & (labels < classes)
        if not usable.all():
            self._valid = False
        if not self._valid:
            return
        truth = labels.astype(np.float64)[:, None]
        for metric in self._metrics.values():
            metric.update_state(truth, predictions, sample_weight=weights)
        if self._kind == "regression":
            # Subtract the first label: differences of the squares of large labels would cancel.
            self._origin = float(labels[0]) if self._origin is None else self._origin
            moved = truth[:, 0] - self._origin
            self._weights += float(weights.sum())
            self._sum += float(weights @ moved)
            self._squares += float(weights @ moved**2)
            self._errors += float(weights @ (truth[:, 0] - predictions[:, 0]) ** 2)

    def results(self) -> dict[str, float | None]:
        """Return the values by metric."""
        values: dict[str, float | None] = {}
        for name, metric in self._metrics.items():
            values[name] = float(defined_result(metric)) if self._valid else None
        if self._kind == "regression":
            values["r2"] = self._r2()
        return {n: v if v is not None and math.isfinite(v) else None for n, v in values.items()}

    def _r2(self) -> float | None:
        if not self._valid or not self._weights > 0:
            return None
        spread = self._squares - self._sum**2 / self._weights
        return 1 - self._errors / spread if spread > 0 else None


def _metrics(kind: LabelKind) -> dict[str, keras.metrics.Metric]:
    made = keras.metrics
    if kind == "binary":
        found = {
            "auc": made.AUC(_THRESHOLDS, dtype="float64"),
            "auc_precision_recall": made.AUC(_THRESHOLDS, curve="PR", dtype="float64"),
            "binary_accuracy": made.BinaryAccuracy(dtype="float64"),
            "binary_crossentropy": made.BinaryCrossentropy(dtype="float64"),
            "precision": made.Precision(dtype="float64"),
            "recall": made.Recall(dtype="float64"),
        }
    elif kind == "multiclass":
        found = {
            "sparse_categorical_accuracy": made.SparseCategoricalAccuracy(dtype="float64"),
            "sparse_categorical_crossentropy": made.SparseCategoricalCrossentropy(dtype="float64"),
        }
    else:
        found = {
            "mean_absolute_error": made.MeanAbsoluteError(dtype="float64"),
            "mean_squared_error": made.MeanSquaredError(dtype="float64"),
            "root_mean_squared_error": made.RootMeanSquaredError(dtype="float64"),
        }
    return found
