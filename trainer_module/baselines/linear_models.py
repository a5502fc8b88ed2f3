"""Sample the training rows and fit scikit-learn's Ridge or LogisticRegression on them.

Row weights are divided by their mean, so that the penalty does not depend on their unit, and
numbers are standardised, so that neither penalty nor solver depends on theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trainer_module.baselines.columns import MAX_COLUMNS, Columns, DesignMatrix
from trainer_module.common.extras import load
from trainer_module.data.input_pipeline import Examples
from trainer_module.model.model_context import ModelContext

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression, Ridge

MAX_ROWS = 100_000
_MIN_ROWS = 1000
_MAX_NUMBERS = 20_000_000  # rows x numbers of a row
_MAX_PRODUCTS = 4_000_000  # in each iteration of a fit, which takes about 50: a second of one core
_MAX_WEIGHTS = 50_000  # columns x outputs
# Numbers of a batch. A batch is large, because Keras metrics take 5 ms for each.
_MAX_BATCH_ROWS = 32_768
_MAX_BATCH_NUMBERS = 8_000_000


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


class Sample(NamedTuple):
    """A sample of the training rows.

    Attributes:
        rows: `[rows, columns]`.
        labels: `[rows]`.
        weights: `[rows]` float64.
    """

    rows: DesignMatrix
    labels: np.ndarray
    weights: np.ndarray


def max_rows(columns: Columns, outputs: int) -> int:
    """Return the largest number of rows to fit a linear model of these columns and outputs on."""
    # A softmax takes the time of ten columns.
    products = outputs * (10 + columns.floats / 2 + columns.nonzeros)
    most = min(_MAX_NUMBERS // _row_numbers(columns), int(_MAX_PRODUCTS / products))
    return max(_MIN_ROWS, min(MAX_ROWS, most))


def batch_rows(columns: Columns) -> int:
    """Return the number of rows to read at a time."""
    return min(_MAX_BATCH_ROWS, _MAX_BATCH_NUMBERS // _row_numbers(columns))


def _row_numbers(columns: Columns) -> int:
    return max(1, columns.floats + columns.nonzeros)


def why_no_linear(columns: Columns, rows: int, outputs: int) -> str:
    """Return the reason why there is no linear model; empty if there is one."""
    if columns.width == 0:
        return "linear: no feature is a number or an id"
    most = _MAX_WEIGHTS * max(1, _MIN_ROWS / rows)
    if columns.width > 2 * MAX_COLUMNS or columns.width * outputs > most:
        return f"linear: {columns.width:,} columns and {outputs} output(s) take too long"
    return ""


def sample_rows(examples: Examples, columns: Columns, rows: int, most: int) -> Sample:
    """Read every nth row, with the smallest n that gives at most `most` rows.

    Args:
        examples: Files and features to read.
        columns: Columns of the matrix.
        rows: Number of rows in the files.
        most: Largest number of rows in the sample.

    Raises:
        ValueError: The weights of the sampled rows sum to 0.
    """
    parts: list[Sample] = []
    batches = examples.every(-(-rows // most), batch_rows(columns))
    for features, label, *rest in batches.as_numpy_iterator():
        matrix = columns.matrix(features, len(label))
        parts.append(Sample(matrix, label[:, 0], row_weights(rest, len(label))))
    sample = Sample(
        DesignMatrix.concatenate([part.rows for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.weights for part in parts]),
    )
    if not sample.weights.sum() > 0:
        raise ValueError("the weights of the sampled training rows sum to 0.")
    return sample


def row_weights(rest: Sequence[np.ndarray], rows: int) -> np.ndarray:
    """Return the weights `[rows]` of a batch (features, labels, *rest); 1 if it has no weights."""
    return rest[0].astype(np.float64) if rest else np.ones(rows)


def fit_linear(sample: Sample, context: ModelContext) -> LinearModel:
    """Fit a ridge regression, or a logistic regression for classes.

    Raises:
        ValueError: No row has a usable label and a weight above 0.
        ModuleNotFoundError: scikit-learn is not installed.
    """
    kind = context.label_kind
    classes = context.outputs if kind == "multiclass" else 2
    usable = np.isfinite(sample.labels) & (sample.weights > 0)
    if kind != "regression":
        usable &= (sample.labels >= 0) & (sample.labels < classes)
    if not usable.any():
        raise ValueError(f"no sampled training row has a usable trainer.label={context.label!r}.")
    rows, labels, weights = sample.rows[usable], sample.labels[usable], sample.weights[usable]
    if kind == "regression":
        return fit_ridge(rows, labels.astype(np.float64), weights)
    return _fit_logistic(rows, labels.astype(np.int64), weights, classes=classes)


def fit_ridge(rows: DesignMatrix, labels: np.ndarray, weights: np.ndarray) -> LinearModel:
    """Fit Ridge(alpha=1).

    Args:
        rows: `[rows, columns]`, finite.
        labels: `[rows]`, finite.
        weights: `[rows]`, at least 0, not all 0.
    """
    ridge = load("sklearn.linear_model", "Ridge", extra="tfx")
    solver = "sparse_cg" if rows.sparse.shape[1] else "cholesky"
    return _fitted(ridge(solver=solver, tol=1e-7, max_iter=1000), rows, labels, weights)


def _fit_logistic(
    rows: DesignMatrix, labels: np.ndarray, weights: np.ndarray, *, classes: int
) -> LinearModel:
    """Fit LogisticRegression(C=1).

    Args:
        rows: `[rows, columns]`, finite.
        labels: `[rows]` int64 from 0 to `classes` - 1.
        weights: `[rows]`, at least 0, not all 0.
        classes: Number of outputs.
    """
    kernel, bias = np.zeros((rows.width, classes)), np.full(classes, -np.inf)
    seen = np.unique(labels)
    if len(seen) == 1:
        bias[seen] = 0.0
        return LinearModel(kernel, bias)
    logistic = load("sklearn.linear_model", "LogisticRegression", extra="tfx")
    model = _fitted(logistic(solver="newton-cg", tol=1e-5, max_iter=100), rows, labels, weights)
    if len(seen) == 2:  # one output, the difference of two logits
        kernel[:, seen[1:]], bias[seen] = model.kernel, [0.0, model.bias[0]]
    else:
        kernel[:, seen], bias[seen] = model
    return LinearModel(kernel, bias)


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Return the softmax of logits `[rows, classes]`."""
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def _fitted(
    model: Ridge | LogisticRegression, rows: DesignMatrix, labels: np.ndarray, weights: np.ndarray
) -> LinearModel:
    """Fit on standardised numbers, and return the coefficients for the numbers as they are."""
    weights = weights / weights.mean()
    mean = weights @ rows.dense / len(weights)
    centred = rows.dense - mean
    spread = np.sqrt(weights @ centred**2 / len(weights))
    spread[spread <= 1e-12 * np.abs(mean)] = 1.0  # constant, but for rounding
    matrix: Any = centred / spread
    if rows.sparse.shape[1]:
        matrix = load("scipy.sparse", "hstack", extra="tfx")([matrix, rows.sparse], format="csr")
    model.fit(matrix, labels, sample_weight=weights)
    kernel = np.atleast_2d(model.coef_).T.copy()
    kernel[: len(mean)] /= spread[:, None]
    return LinearModel(kernel, np.atleast_1d(model.intercept_) - mean @ kernel[: len(mean)])
