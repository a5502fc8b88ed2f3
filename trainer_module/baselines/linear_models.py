"""Fit linear models of scikit-learn with its default penalties.

    regression:  Ridge(alpha=1):            min over w, b of  Σ_i w_i (y_i - x_i·w - b)²  +  |w|²
    classes:     LogisticRegression(C=1):   min over W, b of
                 -Σ_i w_i log softmax(x_i W + b)[y_i]  +  |W|² / 2

The row weights w_i are divided by their mean, so that the penalty does not depend on their unit.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np

from trainer_module.common.extras import load

_TOLERANCE = 1e-6
_MIN_ITERATIONS, _MAX_ITERATIONS = 100, 2000
_MAX_UNSCALED = 1e4
_MAX_PRODUCTS = 1_000_000_000  # rows x columns x classes x iterations: a few seconds on one core


class LinearModel(NamedTuple):
    """A linear function of columns: predictions for regression, logits for classes.

        outputs = rows @ kernel + bias

    Attributes:
        kernel: `[columns, outputs]`.
        bias: `[outputs]`; -inf for a class without rows.
    """

    kernel: np.ndarray
    bias: np.ndarray

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Return the outputs `[rows, outputs]` for rows `[rows, columns]`."""
        return rows @ self.kernel + self.bias


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Return the softmax of logits `[rows, classes]`."""
    return load("scipy.special", "softmax", extra="tfx")(logits, axis=1)


def fit_ridge(rows: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> LinearModel:
    """Fit a linear regression.

    Args:
        rows: `[rows, columns]`, finite.
        labels: `[rows]`, finite.
        weights: `[rows]`, at least 0, not all 0.

    Returns:
        A model with one output.

    Raises:
        ValueError: A label is not finite.
        ModuleNotFoundError: scikit-learn is not installed.
    """
    ridge = load("sklearn.linear_model", "Ridge", extra="tfx")
    model = ridge().fit(rows, labels, weights / weights.mean())
    return LinearModel(model.coef_[:, None], np.array([model.intercept_]))


def fit_logistic(
    rows: np.ndarray, labels: np.ndarray, weights: np.ndarray, *, classes: int
) -> LinearModel:
    """Fit a logistic regression.

    If the solver does not converge on the unchanged columns, or an absolute value is larger than
    10,000, all columns except those with only 0 and 1 are standardised first.

    Args:
        rows: `[rows, columns]`, finite.
        labels: `[rows]`, classes from 0.
        weights: `[rows]`, at least 0, not all 0.
        classes: Number of classes. A class without rows has probability 0.

    Returns:
        A model whose outputs are the logits of the classes.

    Raises:
        ModuleNotFoundError: scikit-learn is not installed.
    """
    kernel, bias = np.zeros((rows.shape[1], classes)), np.full(classes, -np.inf)
    seen = np.unique(labels)
    bias[seen] = 0.0
    if len(seen) > 1:  # scikit-learn rejects a single class
        fitted = _fit_converging(rows, labels, weights / weights.mean())
        # Two classes have one logit: that of the second class.
        seen = seen[-fitted.kernel.shape[1] :]
        kernel[:, seen], bias[seen] = fitted
    return LinearModel(kernel, bias)


def _fit_converging(rows: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> LinearModel:
    """Return a model of the logits of classes with rows; of two classes, only the second."""
    size = rows.size * len(np.unique(labels))
    iterations = int(np.clip(_MAX_PRODUCTS // size, _MIN_ITERATIONS, _MAX_ITERATIONS))
    logistic = load("sklearn.linear_model", "LogisticRegression", extra="tfx")
    not_converged = load("sklearn.exceptions", "ConvergenceWarning", extra="tfx")
    model = logistic(tol=_TOLERANCE, max_iter=iterations)
    with warnings.catch_warnings():
        # For larger values, the solver (L-BFGS) may stop far from the optimum without a warning.
        if np.abs(rows).max(initial=0.0) <= _MAX_UNSCALED:
            warnings.simplefilter("error", not_converged)
            try:
                model.fit(rows, labels, weights)
                return LinearModel(model.coef_.T, model.intercept_)
            except not_converged:
                pass
        warnings.simplefilter("ignore", not_converged)
        mean, scale = _moments_of_numbers(rows)
        model.fit((rows - mean) / scale, labels, weights)
        kernel = model.coef_.T / scale[:, None]
        return LinearModel(kernel, model.intercept_ - (mean / scale) @ model.coef_.T)


def _moments_of_numbers(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of each column; 0 and 1 for columns with only 0 and 1."""
    scaler = load("sklearn.preprocessing", "StandardScaler", extra="tfx")().fit(rows)
    numbers = ((rows != 0) & (rows != 1)).any(axis=0)
    return np.where(numbers, scaler.mean_, 0.0), np.where(numbers, scaler.scale_, 1.0)
