"""Sample the training rows as a matrix, and fit a linear model on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trainer_module.baselines.columns import MAX_COLUMNS, Columns
from trainer_module.baselines.linear_models import LinearModel, fit_logistic, fit_ridge
from trainer_module.data.input_pipeline import Examples
from trainer_module.model.model_context import ModelContext

MAX_ROWS = 100_000
BATCH_ROWS = 8192
_MAX_NUMBERS = 20_000_000
_MAX_PRODUCTS = 50_000_000
_MIN_ROWS = 1000


class Sample(NamedTuple):
    """A sample of the training rows.

    Attributes:
        rows: `[rows, columns]` float64.
        labels: `[rows]`.
        weights: `[rows]` float64.
    """

    rows: np.ndarray
    labels: np.ndarray
    weights: np.ndarray


def max_rows(columns: Columns, outputs: int) -> int:
    """Return the largest number of rows to fit a linear model of these columns and outputs on."""
    width = max(1, columns.width)
    return min(MAX_ROWS, _MAX_NUMBERS // width, _MAX_PRODUCTS // (width * outputs))


def why_no_linear(columns: Columns, rows: int, outputs: int) -> str:
    """Return the reason why there is no linear model; empty if there is one."""
    if columns.width == 0:
        return "linear: no feature is a number or an id"
    if columns.width > 2 * MAX_COLUMNS or max_rows(columns, outputs) < min(_MIN_ROWS, rows):
        return f"linear: {columns.width:,} columns and {outputs} output(s) take too long"
    return ""


def sample_rows(examples: Examples, columns: Columns | None, rows: int, most: int) -> Sample:
    """Read every nth row, with the smallest n that gives at most `most` rows.

    Args:
        examples: Files and features to read.
        columns: Columns of the matrix; None for a matrix without columns.
        rows: Number of rows in the files.
        most: Largest number of rows in the sample.

    Raises:
        ValueError: The weights of the sampled rows sum to 0.
    """
    parts: list[Sample] = []
    batches = examples.every(-(-rows // most), BATCH_ROWS)
    for features, label, *rest in batches.as_numpy_iterator():
        matrix = np.zeros((len(label), 0)) if columns is None else columns.matrix(features)
        parts.append(Sample(matrix, label[:, 0], row_weights(rest, len(label))))
    found = Sample(*(np.concatenate(each) for each in zip(*parts, strict=True)))
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
        ModuleNotFoundError: scikit-learn is not installed.
    """
    kind = context.label_kind
    classes = context.outputs if kind == "multiclass" else 2
    usable = np.isfinite(sample.labels) & (sample.weights > 0)
    if kind != "regression":
        usable &= (sample.labels >= 0) & (sample.labels < classes)
    if not usable.any():
        raise ValueError(f"no sampled training row has a usable trainer.label={context.label!r}.")
    if not usable.all():  # avoid a copy: the matrix may have 160 MB
        sample = Sample(*(each[usable] for each in sample))
    rows, labels, weights = sample
    if kind == "regression":
        return fit_ridge(rows, labels.astype(np.float64), weights)
    return fit_logistic(rows, labels.astype(np.int64), weights, classes=classes)
