"""What the metrics of the YAML are by scikit-learn and NumPy, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn import metrics as reference

Value = Callable[..., float]


class Reference(NamedTuple):
    """A metric of labels `[rows]`, predictions `[rows, outputs]` and weights `[rows]`."""

    value: Value
    relative: float = 1e-6


def _of_number(value: Value) -> Value:
    return lambda y, p, w: value(y, p[:, 0], sample_weight=w)


def _of_class(value: Value, **options: Any) -> Value:
    return lambda y, p, w: value(y, p[:, 0] > 0.5, sample_weight=w, **options)


def _log_loss(y: np.ndarray, p: np.ndarray, w: np.ndarray) -> float:
    p = p if p.shape[1] > 1 else np.hstack([1 - p, p])
    return reference.log_loss(y, p, sample_weight=w, labels=range(p.shape[1]))


def _calibration(y: np.ndarray, p: np.ndarray, w: np.ndarray) -> float:
    return bins_by_hand(y, p, w)[1]


def bins_by_hand(y: np.ndarray, p: np.ndarray, w: np.ndarray) -> tuple[Any, float, float]:
    """Bins (weight, mean probability, share), their error and mean predicted / observed."""
    came, top = (y if p.shape[1] == 1 else y == p.argmax(1)), p.max(1)
    found, error = [], 0.0
    for i in range(10):
        inside = (top * 10 >= i) & ((top * 10 < i + 1) | (i == 9)) & (w > 0)
        if inside.any():
            weights = w[inside]
            mean, share = (np.average(v[inside], weights=weights) for v in (top, came))
            found.append((weights.sum(), mean, share))
            error += weights.sum() / w.sum() * abs(mean - share)
    observed = np.average(came, weights=w)
    return found, error, np.average(top, weights=w) / observed if observed else math.nan


REFERENCES = {
    "auc": Reference(_of_number(reference.roc_auc_score), 1e-4),
    "auc_precision_recall": Reference(_of_number(reference.average_precision_score), 5e-2),
    "binary_accuracy": Reference(_of_class(reference.accuracy_score)),
    "binary_crossentropy": Reference(_log_loss),
    "precision": Reference(_of_class(reference.precision_score)),
    "recall": Reference(_of_class(reference.recall_score)),
    "sparse_categorical_accuracy": Reference(
        lambda y, p, w: reference.accuracy_score(y, p.argmax(1), sample_weight=w)
    ),
    "sparse_categorical_crossentropy": Reference(_log_loss),
    "calibration_error": Reference(_calibration),
    "mean_absolute_error": Reference(_of_number(reference.mean_absolute_error)),
    "mean_squared_error": Reference(_of_number(reference.mean_squared_error)),
    "root_mean_squared_error": Reference(
        lambda y, p, w: math.sqrt(reference.mean_squared_error(y, p[:, 0], sample_weight=w))
    ),
    "r2": Reference(_of_number(reference.r2_score)),
}
