"""Linear models in NumPy and float64: least squares and logistic regression, with a ridge.

    regression:      min over w, b of  Σ_i w_i (y_i - x_i·w - b)²  +  |w|²
    classification:  min over W, b of  -Σ_i w_i log softmax(x_i W + b)[y_i]  +  |W|² / 2

The weights w_i have mean 1. These are `Ridge(alpha=1)` and `LogisticRegression(C=1)` of
scikit-learn, which the trainer does not depend on; of two classes `C=2`, as it has one output then.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

_TOLERANCE = 1e-6
_MOST_STEPS = 50
_MOST_INNER_STEPS = 60
_SUFFICIENT = 1e-4
_SHORTEST_STEP = 2.0**-30


class LinearModel(NamedTuple):
    """What was fitted.

    Attributes:
        weights: `[columns, outputs]`.
        intercept: `[outputs]`.
    """

    weights: np.ndarray
    intercept: np.ndarray

    def scores(self, rows: np.ndarray) -> np.ndarray:
        """Returns `[rows, outputs]`: numbers, or logits."""
        return rows @ self.weights + self.intercept


def least_squares(rows: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> LinearModel:
    """Returns the regression.

    Args:
        rows: `[rows, columns]`.
        labels: `[rows]`.
        weights: `[rows]`, at least 0, not all 0.
    """
    share = weights / weights.sum()
    centre, mean = share @ rows, share @ labels
    # In place of an intercept, which has no ridge: all is centred, and it is what is left.
    scaled = (weights / weights.mean())[:, None] * (rows - centre)
    matrix = scaled.T @ (rows - centre) + np.eye(rows.shape[1])
    found = np.linalg.solve(matrix, scaled.T @ (labels - mean))
    return LinearModel(found[:, None], np.array([mean - centre @ found]))


def logistic(
    rows: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray,
    *,
    classes: int,
    most_seconds: float = 20.0,
) -> LinearModel:
    """Returns the classification, by Newton's method with conjugate gradients inside.

    Two classes have two outputs, of which one is superfluous; the ridge makes them opposites.

    Args:
        rows: `[rows, columns]`.
        labels: `[rows]`, classes from 0.
        weights: `[rows]`, at least 0, not all 0.
        classes: Their number.
        most_seconds: After these the best so far is returned.
    """
    deadline = time.monotonic() + most_seconds
    weight = (weights / weights.mean())[:, None]
    columns = np.hstack([rows, np.ones((len(rows), 1))])
    ridge = np.ones((columns.shape[1], 1))
    ridge[-1] = 0.0
    truth = np.eye(classes)[labels]
    found = np.zeros((columns.shape[1], classes))

    def objective(parameters: np.ndarray) -> float:
        logits = log_softmax(columns @ parameters)
        return float((ridge * parameters**2).sum() / 2 - (weight * truth * logits).sum())

    value, first = objective(found), None
    for _ in range(_MOST_STEPS):
        shares = np.exp(log_softmax(columns @ found))
        gradient = columns.T @ (weight * (shares - truth)) + ridge * found
        size = float(np.linalg.norm(gradient))
        first = size if first is None else first
        if size <= _TOLERANCE * max(first, 1.0) or time.monotonic() > deadline:
            break

        def curvature(direction: np.ndarray, shares: np.ndarray = shares) -> np.ndarray:
            moved = columns @ direction
            moved = shares * (moved - (shares * moved).sum(axis=1, keepdims=True))
            return columns.T @ (weight * moved) + ridge * direction

        precision = min(0.5, np.sqrt(size / max(first, 1.0)))
        step = _conjugate_gradients(curvature, -gradient, tolerance=precision * size)
        slope = float((step * gradient).sum())
        length = 1.0
        while (
            reached := objective(found + length * step)
        ) > value + _SUFFICIENT * length * slope and length > _SHORTEST_STEP:
            length /= 2
        if not reached < value:
            break
        found, value = found + length * step, reached
    return LinearModel(found[:-1], found[-1])


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Returns the logarithms of probabilities, `[rows, classes]`."""
    logits = logits - logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def _conjugate_gradients(curvature, target: np.ndarray, *, tolerance: float) -> np.ndarray:
    """Returns about the x with curvature(x) = target, for a curvature that is never negative."""
    found = np.zeros_like(target)
    left, direction = target, target
    square = float((left**2).sum())
    for _ in range(_MOST_INNER_STEPS):
        if np.sqrt(square) <= tolerance:
            break
        bent = curvature(direction)
        along = float((direction * bent).sum())
        if along <= 0:
            break
        length = square / along
        found, left = found + length * direction, left - length * bent
        before, square = square, float((left**2).sum())
        direction = left + square / before * direction
    return found
