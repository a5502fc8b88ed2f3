"""Sample the training rows and fit scikit-learn's Ridge or LogisticRegression on them.

Row weights are divided by their mean, so that the penalty does not depend on their unit, and
numbers are standardised, so that neither penalty nor solver depends on theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trainer_module.baselines.columns import MAX_COLUMNS, Columns
from trainer_module.common.extras import load
from trainer_module.data.input_pipeline import Examples
from trainer_module.model.model_context import ModelContext

if TYPE_CHECKING:
    from scipy.sparse import csr_array
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

        outputs = rows @ kernel [columns, outputs] + bias [outputs]

    The bias of a class without rows is -inf.
    """

    kernel: np.ndarray
    bias: np.ndarray

    def __call__(self, rows: csr_array) -> np.ndarray:
        """Return the outputs `[rows, outputs]` for rows `[rows, columns]`."""
        return rows @ self.kernel + self.bias


class Sample(NamedTuple):
    """A sample of the training rows.

    Attributes:
        rows: `[rows, columns]`.
        labels: `[rows]`.
        weights: `[rows]` float64.
        floats: Number of columns that are no 0/1 columns or terms; they are the first ones.
    """

    rows: csr_array
    labels: np.ndarray
    weights: np.ndarray
    floats: int


def max_rows(columns: Columns, context: ModelContext) -> int:
    """Return the largest number of rows to fit a linear model of these columns on."""
    # A softmax takes the time of ten columns.
    products = _outputs(context) * (10 + columns.floats / 2 + columns.nonzeros)
    most = min(_MAX_NUMBERS // _row_numbers(columns), int(_MAX_PRODUCTS / products))
    return max(_MIN_ROWS, min(MAX_ROWS, most))


def _outputs(context: ModelContext) -> int:
    return context.outputs if context.label_kind == "multiclass" else 1


def batch_rows(columns: Columns) -> int:
    """Return the number of rows to read at a time."""
    return min(_MAX_BATCH_ROWS, _MAX_BATCH_NUMBERS // _row_numbers(columns))


def _row_numbers(columns: Columns) -> int:
    return max(1, columns.floats + columns.nonzeros)


def why_no_linear(columns: Columns, rows: int, context: ModelContext) -> str:
    """Return the reason why there is no linear model; empty if there is one."""
    outputs = _outputs(context)
    if columns.width == 0:
        return "linear: no feature is a number or an id"
    most = _MAX_WEIGHTS * max(1, _MIN_ROWS / rows)
    if columns.width > 2 * MAX_COLUMNS or columns.width * outputs > most:
        return f"linear: {columns.width:,} columns and {outputs} output(s) take too long"
    return ""


def sample_rows(examples: Examples, columns: Columns, rows: int, most: int) -> Sample:
    """Read every nth of so many rows, with the smallest n that gives at most `most` rows.

    Raises:
        ValueError: The weights of the sampled rows sum to 0.
    """
    parts = []
    batches = examples.every(-(-rows // most), batch_rows(columns))
    for features, label, *rest in batches.as_numpy_iterator():
        matrix = columns.matrix(features, len(label))
        parts.append((matrix, label[:, 0], row_weights(rest, len(label))))
    matrices, labels, weights = zip(*parts, strict=True)
    rows_of = load("scipy.sparse", "vstack", extra="tfx")(matrices, format="csr")
    sample = Sample(rows_of, np.concatenate(labels), np.concatenate(weights), columns.floats)
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
    sample = Sample(*(each[usable] for each in sample[:3]), sample.floats)
    return fit_ridge(sample) if kind == "regression" else _fit_logistic(sample, classes=classes)


def fit_ridge(sample: Sample) -> LinearModel:
    """Fit Ridge(alpha=1) to finite rows; the weights are at least 0, and not all 0."""
    ridge = load("sklearn.linear_model", "Ridge", extra="tfx")
    solver = "sparse_cg" if sample.rows.shape[1] > sample.floats else "cholesky"
    sample = sample._replace(labels=sample.labels.astype(np.float64))
    return _fitted(ridge(solver=solver, tol=1e-7, max_iter=1000), sample)


def _fit_logistic(sample: Sample, *, classes: int) -> LinearModel:
    """Fit LogisticRegression(C=1) to labels from 0 to `classes` - 1."""
    sample = sample._replace(labels=sample.labels.astype(np.int64))
    kernel, bias = np.zeros((sample.rows.shape[1], classes)), np.full(classes, -np.inf)
    seen = np.unique(sample.labels)
    if len(seen) == 1:
        bias[seen] = 0.0
        return LinearModel(kernel, bias)
    logistic = load("sklearn.linear_model", "LogisticRegression", extra="tfx")
    model = _fitted(logistic(solver="newton-cg", tol=1e-5, max_iter=100), sample)
    if len(seen) == 2:  # one output, the difference of two logits
        kernel[:, seen[1:]], bias[seen] = model.kernel, [0.0, model.bias[0]]
    else:
        kernel[:, seen], bias[seen] = model
    return LinearModel(kernel, bias)


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Return the softmax of logits `[rows, classes]`."""
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def _fitted(model: Ridge | LogisticRegression, sample: Sample) -> LinearModel:
    """Fit on standardised numbers, and return the coefficients for the numbers as they are."""
    rows, labels, weights, floats = sample
    dense = rows[:, :floats].toarray()
    weights = weights / weights.mean()
    mean = weights @ dense / len(weights)
    centred = dense - mean
    spread = np.sqrt(weights @ centred**2 / len(weights))
    spread[spread <= 1e-12 * np.abs(mean)] = 1.0  # constant, but for rounding
    matrix: Any = centred / spread
    if rows.shape[1] > floats:
        hstack = load("scipy.sparse", "hstack", extra="tfx")
        matrix = hstack([matrix, rows[:, floats:]], format="csr")
    model.fit(matrix, labels, sample_weight=weights)
    kernel = np.atleast_2d(model.coef_).T.copy()
    kernel[:floats] /= spread[:, None]
    return LinearModel(kernel, np.atleast_1d(model.intercept_) - mean @ kernel[:floats])
