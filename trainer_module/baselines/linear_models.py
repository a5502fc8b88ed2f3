"""Linear models of scikit-learn on a sample of rows, with its default penalties.

    regression:  Ridge(alpha=1):            min over w, b of  Σ_i w_i (y_i - x_i·w - b)²  +  |w|²
    classes:     LogisticRegression(C=1):   min over W, b of
                 -Σ_i w_i log softmax(x_i W + b)[y_i]  +  |W|² / 2

The row weights w_i are divided by their mean, so that the penalty does not depend on their unit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from trainer_module.common.extras import load

_TOLERANCE = 1e-6
_MIN_ITERATIONS, _MAX_ITERATIONS = 100, 2000
_MAX_UNSCALED = 1e4
_MAX_PRODUCTS = 1_000_000_000  # rows x columns x classes x iterations: a few seconds on one core

Predict = Callable[[np.ndarray], np.ndarray]


def fit_ridge(rows: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> Predict:
    """Fit a linear regression.

    Args:
        rows: `[rows, columns]`, finite.
        labels: `[rows]`, finite.
        weights: `[rows]`, at least 0, not all 0.

    Returns:
        `[rows, columns]` -> numbers `[rows, 1]`.

    Raises:
        ValueError: A label is not finite.
        ModuleNotFoundError: scikit-learn is not installed.
    """
    ridge = load("sklearn.linear_model", "Ridge", extra="tfx")
    model = ridge().fit(rows, labels, weights / weights.mean())
    return lambda rows: model.predict(rows)[:, None]


def fit_logistic(
    rows: np.ndarray, labels: np.ndarray, weights: np.ndarray, *, classes: int
) -> Predict:
    """Fit a classification.

    If the solver does not converge on the columns as they are, or a value is larger than 10,000,
    all columns except those of 0 and 1 are standardised first.

    Args:
        rows: `[rows, columns]`, finite.
        labels: `[rows]`, classes from 0.
        weights: `[rows]`, at least 0, not all 0.
        classes: Their number. A class without rows has probability 0.

    Returns:
        `[rows, columns]` -> probabilities `[rows, classes]`.

    Raises:
        ModuleNotFoundError: scikit-learn is not installed.
    """
    seen = np.unique(labels)
    # scikit-learn rejects a single class.
    model = _fit_converging(rows, labels, weights / weights.mean()) if len(seen) > 1 else None

    def predict(rows: np.ndarray) -> np.ndarray:
        found = np.zeros((len(rows), classes))
        found[:, seen] = model.predict_proba(rows) if model is not None else 1.0
        return found

    return predict


def _fit_converging(rows: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> Any:
    """Return a fitted object with `predict_proba`."""
    size = rows.size * len(np.unique(labels))
    iterations = int(np.clip(_MAX_PRODUCTS // size, _MIN_ITERATIONS, _MAX_ITERATIONS))
    logistic = load("sklearn.linear_model", "LogisticRegression", extra="tfx")
    not_converged = load("sklearn.exceptions", "ConvergenceWarning", extra="tfx")
    model = logistic(tol=_TOLERANCE, max_iter=iterations)
    with warnings.catch_warnings():
        # Beyond, the solver (L-BFGS) may stop far from the optimum without a warning.
        if np.abs(rows).max(initial=0.0) <= _MAX_UNSCALED:
            warnings.simplefilter("error", not_converged)
            try:
                return model.fit(rows, labels, weights)
            except not_converged:
                pass
        warnings.simplefilter("ignore", not_converged)
        scaled = _with_scaled_numbers(rows, model)
        return scaled.fit(rows, labels, logisticregression__sample_weight=weights)


def _with_scaled_numbers(rows: np.ndarray, model: Any) -> Any:
    """Return a pipeline that standardises the columns of other numbers than 0 and 1."""
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    numbers = ((rows != 0) & (rows != 1)).any(axis=0)
    scaling = ColumnTransformer([("numbers", StandardScaler(), numbers)], remainder="passthrough")
    return make_pipeline(scaling, model)
