"""Fit scikit-learn's Ridge and LogisticRegression on a sample of the transformed training rows.

Floats are columns as they are, ids 0/1 columns. Ids from a limit on share one column; the ids of a
vocabulary are ordered by frequency, so the rarest ids share it. A text has one column for each of
its most frequent terms, with the term's weight. A row has one id of hundreds, so the matrix is
sparse.

Row weights are divided by their mean, so that the penalty does not depend on their unit, and
numbers are standardised, so that neither penalty nor solver depends on theirs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trainer_module.common.extras import load
from trainer_module.data.input_pipeline import Examples
from trainer_module.data.text_bags import other_places, text_bags
from trainer_module.model.default_model import id_ranges
from trainer_module.model.model_context import ModelContext

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from sklearn.linear_model import LogisticRegression, Ridge

_MAX_COLUMNS = 1000
_MAX_IDS = 256
_MIN_IDS = 4
_MIN_TERMS = 32  # of each text
MAX_ROWS = 100_000
_MIN_ROWS = 1000
_MAX_NUMBERS = 20_000_000  # rows x numbers of a row
_MAX_PRODUCTS = 4_000_000  # in each iteration of a fit, which takes about 50: a second of one core
_MAX_WEIGHTS = 50_000  # columns x outputs
# Numbers of a batch. A batch is large, because Keras metrics take 5 ms for each.
_MAX_BATCH_ROWS = 32_768
_MAX_BATCH_NUMBERS = 8_000_000


class Columns:
    """The columns of a linear model for a model's inputs.

        {feature: [rows, ...]} -> [rows, width]

    Attributes:
        width: Number of columns: first those of floats, then ids, then terms of texts.
        floats: Number of columns of floats.
        id_widths: (number of ids, number of columns) of each id feature value.
        terms: Number of columns of the terms of texts.
        nonzeros: Largest number of ids and terms of a row, which have a column each.
        images: Features that have no columns.
    """

    def __init__(self, context: ModelContext, inputs: Sequence[str]) -> None:
        """Assign columns to the features that the model uses."""
        spec = {name: context.feature_spec[name] for name in inputs}
        self.images = [name for name, feature in spec.items() if feature.dtype == "uint8"]
        # No pictures, and no sequences of token ids.
        spec = {n: f for n, f in spec.items() if n not in self.images and None not in f.shape}
        self._bags = [
            bag
            for bag in text_bags(context.layout)
            if all(name in spec for name, _ in (*bag.ids, *bag.weights))
        ]
        places = {
            name: other_places(self._bags, name, math.prod(f.shape)) for name, f in spec.items()
        }
        self._floats = {name: places[name] for name, f in spec.items() if f.dtype.is_floating}
        self._ids: dict[str, list[tuple[int, int, int]]] = {}
        for name, feature in spec.items():
            if feature.dtype.is_integer:
                ranges = id_ranges(context, name, math.prod(feature.shape))
                self._ids[name] = [(place, *ranges[place]) for place in places[name]]
        counts = [count for ranges in self._ids.values() for _, _, count in ranges]
        floats = sum(map(len, self._floats.values()))
        self._cap = _MAX_IDS
        while self._cap > _MIN_IDS and floats + self._of_ids(counts) > _MAX_COLUMNS:
            self._cap //= 2
        self.width = floats + self._of_ids(counts)
        left = (_MAX_COLUMNS - self.width) // max(1, len(self._bags))
        self._terms = [min(bag.count - 1, max(left, _MIN_TERMS)) for bag in self._bags]
        self.floats = floats
        self.id_widths = [(count, min(count, self._cap)) for count in counts]
        self.terms = sum(self._terms)
        self.width += self.terms
        self.nonzeros = len(counts) + sum(len(bag.ids) for bag in self._bags)

    def _of_ids(self, counts: Sequence[int]) -> int:
        return sum(min(count, self._cap) for count in counts)

    def matrix(self, features: Mapping[str, np.ndarray], rows: int) -> csr_array:
        """Return the matrix `[rows, width]` of a batch; non-finite values become 0."""
        columns = [np.tile(np.arange(self.floats, dtype=np.int32), (rows, 1))]
        values = [np.zeros((rows, 0))]
        for name, places in self._floats.items():
            floats = features[name].reshape(rows, -1)[:, places].astype(np.float64)
            values.append(np.nan_to_num(floats, copy=False, nan=0.0, posinf=0.0, neginf=0.0))
        start = self.floats
        for name, ranges in self._ids.items():
            ids = features[name].reshape(rows, -1)
            for position, first, count in ranges:
                last = min(count, self._cap) - 1
                local = ids[:, position] - first
                # Like PackedEmbedding: an id outside its range becomes the last one.
                local = np.where((local < 0) | (local > last), last, local)
                columns.append((start + local[:, None]).astype(np.int32))
                values.append(np.ones((rows, 1)))
                start += last + 1
        for bag, terms in zip(self._bags, self._terms, strict=True):
            if not terms:
                continue
            ids, weights = (
                np.stack([features[name].reshape(rows, -1)[:, at] for name, at in places], axis=1)
                for places in (bag.ids, bag.weights)
            )
            local = np.clip(ids, 0, terms)
            other = local == terms  # all other terms have no column
            columns.append(np.where(other, 0, start + local).astype(np.int32))
            values.append(np.where(other, 0.0, weights))
            start += terms
        table = np.hstack(values)
        csr_array = load("scipy.sparse", "csr_array", extra="tfx")
        ends = np.arange(rows + 1, dtype=np.int32) * table.shape[1]
        places = np.hstack(columns).ravel()
        return csr_array((table.ravel(), places, ends), shape=(rows, self.width))


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
    """A sample of the training rows; the first columns are floats, in this number."""

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
    if columns.images:
        return f"linear: the model takes pictures ({', '.join(columns.images)})"
    if columns.width == 0:
        return "linear: no feature is a number or an id (it takes no sequence of token ids)"
    most = _MAX_WEIGHTS * max(1, _MIN_ROWS / rows)
    if columns.width > 2 * _MAX_COLUMNS or columns.width * outputs > most:
        return f"linear: {columns.width:,} columns and {outputs} output(s) take too long"
    return ""


def sample_rows(examples: Examples, columns: Columns, rows: int, most: int) -> Sample:
    """Read every nth of so many rows, with the smallest n that gives at most `most` rows."""
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
    rows, labels, weights, floats = sample
    sample = Sample(rows[usable], labels[usable], weights[usable], floats)
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
