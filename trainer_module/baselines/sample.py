"""Sample the training rows as a matrix, and fit a linear model on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trainer_module.baselines.columns import MAX_COLUMNS, Columns
from trainer_module.baselines.design_matrix import DesignMatrix
from trainer_module.baselines.linear_models import LinearModel, fit_logistic, fit_ridge
from trainer_module.data.input_pipeline import Examples
from trainer_module.model.model_context import ModelContext

MAX_ROWS = 100_000
_MIN_ROWS = 1000
_MAX_NUMBERS = 20_000_000  # rows x numbers of a row
_MAX_PRODUCTS = 4_000_000  # in each iteration of a fit, which takes about 50: a second of one core
_MAX_WEIGHTS = 50_000  # columns x outputs
# Numbers of a batch. A batch is large, because Keras metrics take 5 ms for each.
_MAX_BATCH_ROWS = 32_768
_MAX_BATCH_NUMBERS = 8_000_000


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
    # A dense column takes an eighth of the time of a sparse one, and a softmax that of ten.
    products = outputs * (10 + columns.floats / 8 + columns.nonzeros) + columns.nonzeros**2 / 20
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
    found = Sample(
        DesignMatrix.concatenate([part.rows for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.weights for part in parts]),
    )
    if not found.weights.sum() > 0:
        raise ValueError("the weights of the sampled training rows sum to 0.")
    return found


def row_weights(rest: Sequence[np.ndarray], rows: int) -> np.ndarray:
    """Return the weights `[rows]` of a batch (features, labels, *rest); 1 if it has no weights."""
    return rest[0].astype(np.float64) if rest else np.ones(rows)


def fit_linear(sample: Sample, context: ModelContext) -> LinearModel:
    """Fit a ridge regression, or a logistic regression for classes.

    Raises:
        ValueError: No row has a usable label and a weight above 0.
        ModuleNotFoundError: SciPy is not installed.
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
    return fit_logistic(rows, labels.astype(np.int64), weights, classes=classes)
