"""Linear models in NumPy and float64: least squares and logistic regression, with a ridge.

    regression:  min over w, b of  Σ_i w_i (y_i - x_i·w - b)²  +  |w|²
    classes:     min over W, b of  -Σ_i w_i log softmax(x_i W + b)[y_i]  +  |W|² / 2
    two classes: the same of one output x_i·w + b, the difference of their logits

The weights w_i have mean 1. These are `Ridge(alpha=1)` and `LogisticRegression(C=1)` of
scikit-learn, which the trainer does not depend on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
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
    """Returns the classification, by Newton's method.

    Its step is exact for two classes, and by conjugate gradients for more, preconditioned by what
    the classes' own curvatures have in common: columns of any scale then take a few iterations.

    Args:
        rows: `[rows, columns]`.
        labels: `[rows]`, classes from 0.
        weights: `[rows]`, at least 0, not all 0.
        classes: Their number. Two have opposite weights.
        most_seconds: After these the best so far is returned.
    """
    problem = _Problem.of(rows, labels, weights, classes)
    deadline = time.monotonic() + most_seconds
    found = np.zeros((problem.columns.shape[1], problem.truth.shape[1]))
    logits = np.zeros_like(problem.truth)
    value, first = problem.objective(found, logits), None
    for _ in range(_MOST_STEPS):
        shares = problem.shares(logits)
        gradient = problem.gradient(found, shares)
        size = float(np.linalg.norm(gradient))
        first = size if first is None else first
        if size <= _TOLERANCE * max(first, 1.0) or time.monotonic() > deadline:
            break
        precision = min(0.5, np.sqrt(size / max(first, 1.0)))
        step = problem.newton_step(shares, gradient, tolerance=precision * size)
        slope = float((step * gradient).sum())
        length, along = 1.0, problem.columns @ step
        while (
            reached := problem.objective(found + length * step, logits + length * along)
        ) > value + _SUFFICIENT * length * slope and length > _SHORTEST_STEP:
            length /= 2
        if not reached < value:
            break
        found, value = found + length * step, reached
        logits = logits + length * along
    if problem.is_binary:
        found = np.hstack([-found / 2, found / 2])
    return LinearModel(found[:-1], found[-1])


class _Problem(NamedTuple):
    """A classification; of two classes with one output, the difference of their logits.

    Attributes:
        columns: `[rows, columns + 1]`, the last for the intercept.
        truth: `[rows, outputs]`, 0 or 1.
        weight: `[rows, 1]`, of mean 1.
        ridge: `[columns + 1, 1]`.
        is_binary: Whether there are two classes.
    """

    columns: np.ndarray
    truth: np.ndarray
    weight: np.ndarray
    ridge: np.ndarray
    is_binary: bool

    @classmethod
    def of(
        cls, rows: np.ndarray, labels: np.ndarray, weights: np.ndarray, classes: int
    ) -> _Problem:
        truth = np.eye(classes)[labels]
        columns = np.hstack([rows, np.ones((len(rows), 1))])
        ridge = np.ones((columns.shape[1], 1))
        ridge[-1] = 0.0
        weight = (weights / weights.mean())[:, None]
        return cls(columns, truth[:, 1:] if classes == 2 else truth, weight, ridge, classes == 2)

    def objective(self, found: np.ndarray, logits: np.ndarray) -> float:
        """The sum that is minimised."""
        if self.is_binary:
            losses = np.logaddexp(0.0, logits) - self.truth * logits
        else:
            losses = -(self.truth * log_softmax(logits)).sum(axis=1, keepdims=True)
        return float((self.ridge * found**2).sum() / 2 + (self.weight * losses).sum())

    def shares(self, logits: np.ndarray) -> np.ndarray:
        """Probabilities, `[rows, outputs]`."""
        if self.is_binary:
            return np.exp(-np.logaddexp(0.0, -logits))
        return np.exp(log_softmax(logits))

    def gradient(self, found: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """Of the objective."""
        return self.columns.T @ (self.weight * (shares - self.truth)) + self.ridge * found

    def newton_step(
        self, shares: np.ndarray, gradient: np.ndarray, *, tolerance: float
    ) -> np.ndarray:
        """Where the objective's parabola is lowest, about."""
        own = (self.weight * shares * (1 - shares)).mean(axis=1, keepdims=True)
        matrix = self.columns.T @ (own * self.columns)
        # Without its own ridge, the intercept of a sure model would have no curvature.
        matrix[np.diag_indices_from(matrix)] += self.ridge[:, 0] + 1e-12 * len(self.columns)
        if self.is_binary:
            return -np.linalg.solve(matrix, gradient)
        inverse = np.linalg.inv(matrix)

        def curvature(direction: np.ndarray) -> np.ndarray:
            moved = self.columns @ direction
            moved = shares * (moved - (shares * moved).sum(axis=1, keepdims=True))
            return self.columns.T @ (self.weight * moved) + self.ridge * direction

        return _conjugate_gradients(
            curvature, -gradient, lambda left: inverse @ left, tolerance=tolerance
        )


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Returns the logarithms of probabilities, `[rows, classes]`."""
    logits = logits - logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def _conjugate_gradients(
    curvature: Callable[[np.ndarray], np.ndarray],
    target: np.ndarray,
    precondition: Callable[[np.ndarray], np.ndarray],
    *,
    tolerance: float,
) -> np.ndarray:
    """Returns about the x with curvature(x) = target, for a curvature that is never negative."""
    found = np.zeros_like(target)
    left, direction = target, precondition(target)
    square = float((left * direction).sum())
    for _ in range(_MOST_INNER_STEPS):
        if np.linalg.norm(left) <= tolerance:
            break
        bent = curvature(direction)
        along = float((direction * bent).sum())
        if along <= 0:
            break
        length = square / along
        found, left = found + length * direction, left - length * bent
        better = precondition(left)
        before, square = square, float((left * better).sum())
        direction = better + square / before * direction
    return found
