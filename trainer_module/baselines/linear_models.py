"""Fit linear models with the objectives of scikit-learn's Ridge and LogisticRegression.

    regression:  Ridge(alpha=1):            min over w, b of  Σ_i w_i (y_i - x_i·w - b)²  +  |w|²
    classes:     LogisticRegression(C=1):   min over W, b of
                 -Σ_i w_i log softmax(x_i W + b)[y_i]  +  |W|² / 2

For two classes, the penalty is |W_1 - W_0|² / 2, as in scikit-learn. The row weights w_i are
divided by their mean, so that the penalty does not depend on their unit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trainer_module.baselines.design_matrix import DesignMatrix
from trainer_module.common.extras import load

_TOLERANCE = 1e-9  # relative decrease of the objective in an iteration
_MAX_ITERATIONS = 300
_JITTER = 1e-12  # of unit variance: rounding must not make a Gram matrix indefinite


class LinearModel(NamedTuple):
    """A linear function of columns: predictions for regression, logits for classes.

        outputs = rows @ kernel + bias

    Attributes:
        kernel: `[columns, outputs]`.
        bias: `[outputs]`; -inf for a class without rows.
    """

    kernel: np.ndarray
    bias: np.ndarray

    def __call__(self, rows: DesignMatrix) -> np.ndarray:
        """Return the outputs `[rows, outputs]` for rows `[rows, columns]`."""
        return rows @ self.kernel + self.bias


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Return the softmax of logits `[rows, classes]`."""
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def fit_ridge(rows: DesignMatrix, labels: np.ndarray, weights: np.ndarray) -> LinearModel:
    """Fit a linear regression by the normal equations.

    Args:
        rows: `[rows, columns]`, finite.
        labels: `[rows]`, finite.
        weights: `[rows]`, at least 0, not all 0.

    Returns:
        A model with one output.

    Raises:
        ModuleNotFoundError: SciPy is not installed.
    """
    weights = weights / weights.mean()
    centred = _Centred(rows, weights)
    mean = weights @ labels / len(labels)
    moments = centred.transposed_matmul((weights * (labels - mean))[:, None])
    kernel = load("scipy.linalg", "cho_solve", extra="tfx")((centred.factor(1.0), False), moments)
    return LinearModel(kernel, mean - centred.means @ kernel)


def fit_logistic(
    rows: DesignMatrix, labels: np.ndarray, weights: np.ndarray, *, classes: int
) -> LinearModel:
    """Fit a logistic regression by L-BFGS.

    The coordinates of the solver are scaled by a Cholesky factor of the objective's Hessian for the
    shares of the classes. So some tens of iterations suffice for columns of any scale.

    Args:
        rows: `[rows, columns]`, finite.
        labels: `[rows]`, classes from 0.
        weights: `[rows]`, above 0.
        classes: Number of classes. A class without rows has probability 0.

    Returns:
        A model whose outputs are the logits of the classes.

    Raises:
        ModuleNotFoundError: SciPy is not installed.
    """
    solve = load("scipy.linalg", "solve_triangular", extra="tfx")
    weights = weights / weights.mean()
    seen, places = np.unique(labels, return_inverse=True)
    numbered = np.arange(len(labels))
    shares = np.bincount(places, weights) / len(labels)
    # The mean of the Hessian's diagonal blocks, as a factor of the Gram matrix.
    curvature = max(float(np.mean(shares * (1 - shares))), _JITTER)
    penalty = 2.0 if len(seen) == 2 else 1.0
    centred = _Centred(rows, weights)
    factor = centred.factor(curvature, penalty)
    unit = 1 / np.sqrt(curvature * len(labels))

    def model(scaled: np.ndarray) -> LinearModel:
        scaled = scaled.reshape(-1, len(seen))
        return LinearModel(solve(factor, scaled[:-1]), np.log(shares) + unit * scaled[-1])

    def objective(scaled: np.ndarray) -> tuple[float, np.ndarray]:
        kernel, bias = model(scaled)
        # Class after class: NumPy reduces a few adjacent numbers per row five times as slowly.
        logits = np.asfortranarray(centred @ kernel + bias)
        logits -= logits.max(axis=1, keepdims=True)
        own = logits[numbered, places]
        errors = np.exp(logits, out=logits)
        sums = errors.sum(axis=1)
        loss = penalty / 2 * np.sum(kernel**2) - weights @ (own - np.log(sums))
        errors *= (weights / sums)[:, None]
        errors[numbered, places] -= weights
        errors = np.ascontiguousarray(errors)
        gradient = centred.transposed_matmul(errors) + penalty * kernel
        scaled_gradient = [solve(factor, gradient, trans="T"), unit * errors.sum(axis=0)[None]]
        return loss, np.concatenate(scaled_gradient).ravel()

    found = load("scipy.optimize", "minimize", extra="tfx")(
        objective,
        np.zeros((len(factor) + 1) * len(seen)),
        jac=True,
        method="L-BFGS-B",
        options={"ftol": _TOLERANCE, "maxiter": _MAX_ITERATIONS},
    )
    fitted = model(found.x)
    kernel, bias = np.zeros((len(factor), classes)), np.full(classes, -np.inf)
    kernel[:, seen], bias[seen] = fitted.kernel, fitted.bias - fitted.bias.mean()
    bias[seen] -= centred.means @ fitted.kernel
    return LinearModel(kernel, bias)


class _Centred:
    """A design matrix minus the weighted means of its columns; the sparse part stays sparse.

    Attributes:
        means: `[columns]`.
    """

    def __init__(self, rows: DesignMatrix, weights: np.ndarray) -> None:
        """Subtract the means with weights `[rows]` of mean 1."""
        numbers = rows.dense.shape[1]
        self.means = rows.transposed_matmul(weights) / len(weights)
        self._weights = weights
        # Subtracted before products: those of large numbers with a small spread would cancel.
        self._rows = DesignMatrix(rows.dense - self.means[:numbers], rows.sparse)
        self._rest = np.concatenate([np.zeros(numbers), self.means[numbers:]])

    def __matmul__(self, kernel: np.ndarray) -> np.ndarray:
        return self._rows @ kernel - self._rest @ kernel

    def transposed_matmul(self, values: np.ndarray) -> np.ndarray:
        return self._rows.transposed_matmul(values) - np.outer(self._rest, values.sum(axis=0))

    def factor(self, scale: float, penalty: float = 1.0) -> np.ndarray:
        """Return the upper Cholesky factor of scale * Gram matrix + penalty * identity."""
        gram = self._rows.gram(self._weights)
        gram -= len(self._weights) * np.outer(self._rest, self._rest)
        gram = scale * gram + penalty * np.eye(len(gram))
        spreads = np.sqrt(gram.diagonal())
        gram = gram / np.outer(spreads, spreads) + _JITTER * np.eye(len(gram))
        return load("scipy.linalg", "cholesky", extra="tfx")(gram) * spreads
