"""Compute metrics of a constant and of a linear model on the eval rows.

    constant: the mean, or the median for the absolute error; for classes, their shares
    linear:   ridge or logistic regression on the transformed features of the model

Both are fitted on at most 100,000 training rows, sampled evenly. With many columns or classes there
are fewer rows (`max_rows`), so that a fit takes about a second of one core. Both are evaluated on
every eval row, with the row weights that the Evaluator uses. The metrics are Keras metrics in
float64, because memory must not grow with the number of rows, with the Evaluator's names and its
10,000 thresholds. A metric that is undefined for the rows is None.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Sequence

import keras
import numpy as np
from absl import logging

from shared_core.atomic_files import atomic_write_text
from trainer_module.baselines.linear_models import (
    MAX_ROWS,
    Columns,
    Sample,
    batch_rows,
    fit_linear,
    max_rows,
    probabilities,
    row_weights,
    sample_rows,
    why_no_linear,
)
from trainer_module.baselines.record import FILE, Baseline, Baselines
from trainer_module.config import TrainerConfig
from trainer_module.data.input_pipeline import DataSummary
from trainer_module.model.data_context import TransformedData, model_context
from trainer_module.model.metrics import defined_result
from trainer_module.model.model_context import LabelKind, ModelContext

_THRESHOLDS = 10_000
_Predict = Callable[[dict[str, np.ndarray], int], np.ndarray]


def _compute_baselines(
    context: ModelContext,
    data: TransformedData,
    summary: DataSummary,
    inputs: Sequence[str],
) -> Baselines:
    """Fit the baselines on features of these names and evaluate them."""
    if not data.eval_files:
        raise ValueError("the examples have no eval split to evaluate baselines on.")
    kind = context.label_kind
    if kind == "regression" and context.outputs != 1:
        raise ValueError(
            f"trainer.label={context.label!r} has {context.outputs} numbers per row, but baselines "
            "support one."
        )
    columns = Columns(context, inputs)
    left_out = why_no_linear(columns, summary.rows, context)
    # The Evaluator uses the weight of Transform; the training may use a different weight.
    weight = data.layout.weight if data.layout is not None else data.train.weight
    if weight not in inputs:
        data = data._replace(train=dataclasses.replace(data.train, weight=weight))
    read = data.train.narrowed(inputs)
    if left_out:
        columns, read = Columns(context, ()), read.narrowed(())
    most = MAX_ROWS if left_out else max_rows(columns, context)
    sample = sample_rows(read, columns, summary.rows, most)
    linear = None if left_out else _fit_linear(context, columns, sample)
    constants = _constants(context, sample)
    scores = {name: _Scores(kind) for name in (*constants, *(["linear"] if linear else []))}
    eval_rows = 0
    evaluated = dataclasses.replace(read, files=data.eval_files)
    for features, label, *rest in evaluated.batches(batch_rows(columns)).as_numpy_iterator():
        labels = label[:, 0]
        weights = row_weights(rest, len(labels))
        eval_rows += len(labels)
        if linear is not None:
            scores["linear"].add(labels, linear(features, len(labels)), weights)
        # A constant predicts the same for all rows with the same label.
        values, places = np.unique(labels, return_inverse=True)
        sums = np.bincount(places, weights)
        for name, constant in constants.items():
            scores[name].add(values, np.tile(constant, (len(values), 1)), sums)
    baselines = [Baseline("constant", _describe(kind, constants), _constant_metrics(kind, scores))]
    if linear is not None:
        what = "least squares" if kind == "regression" else "logistic regression"
        what = f"{what} on {columns.width:,} columns"
        baselines.append(Baseline("linear", what, scores["linear"].results()))
    return Baselines(len(sample.labels), eval_rows, tuple(baselines), left_out)


def write_baselines(
    folder: str,
    data: TransformedData,
    summary: DataSummary,
    config: TrainerConfig,
    inputs: Sequence[str],
) -> None:
    """Compute the baselines of a model with these inputs and write `baselines.json` to a folder.

    A failure is logged as a warning, because the trained model does not need the baselines.
    """
    try:
        found = _compute_baselines(model_context(config, data, summary), data, summary, inputs)
    except (ValueError, ImportError, MemoryError, np.linalg.LinAlgError) as error:
        logging.warning("Computed no baselines: %s", error)
        return
    atomic_write_text(os.path.join(folder, FILE), found.to_json())
    for each in found.baselines:
        shown = ", ".join(
            f"{name} {'undefined' if value is None else format(value, '.6g')}"
            for name, value in each.metrics.items()
        )
        logging.info("Baseline %s (%s): %s", each.name, each.is_what, shown)


def _fit_linear(context: ModelContext, columns: Columns, sample: Sample) -> _Predict:
    linear = fit_linear(sample, context)
    if context.label_kind == "regression":
        return lambda features, rows: linear(columns.matrix(features, rows))
    first = 1 if context.label_kind == "binary" else 0
    return lambda features, rows: probabilities(linear(columns.matrix(features, rows)))[:, first:]


def _constants(context: ModelContext, sample: Sample) -> dict[str, np.ndarray]:
    """Return the prediction `[outputs]` of each constant, by name."""
    labels, share = sample.labels.astype(np.float64), sample.weights / sample.weights.sum()
    if context.label_kind == "regression":
        return {
            "mean": np.array([share @ labels]),
            "median": np.array([_weighted_median(labels, share)]),
        }
    if context.label_kind == "binary":
        return {"prior": np.array([share @ labels])}
    counts = np.bincount(labels.astype(np.int64), share, minlength=context.outputs)
    return {"prior": counts}


def _weighted_median(values: np.ndarray, weights: np.ndarray) -> float:
    """Return the median of values `[rows]` with weights of at least 0."""
    order = np.argsort(values, kind="stable")
    values, reached = values[order], np.cumsum(weights[order])
    half = reached[-1] / 2
    low = int(np.searchsorted(reached, half * (1 - 1e-12)))
    high = int(np.searchsorted(reached, half * (1 + 1e-12), side="right"))
    high = min(high, len(values) - 1)
    return float((values[low] + values[high]) / 2)


def _constant_metrics(kind: str, scores: dict[str, _Scores]) -> dict[str, float | None]:
    if kind != "regression":
        return scores["prior"].results()
    absolute = "mean_absolute_error"
    return {**scores["mean"].results(), absolute: scores["median"].results()[absolute]}


def _describe(kind: str, constants: dict[str, np.ndarray]) -> str:
    if kind == "regression":
        mean, median = (float(constants[name][0]) for name in ("mean", "median"))
        return f"the training rows' mean {mean:.6g}; for absolute errors their median {median:.6g}"
    if kind == "binary":
        return f"the training rows' share of positives {float(constants['prior'][0]):.4f}"
    shares = constants["prior"]
    return f"the training rows' shares of {len(shares)} classes, the largest {shares.max():.4f}"


class _Scores:
    """Accumulates metrics over batches; row weights may be 0."""

    def __init__(self, kind: LabelKind) -> None:
        self._kind = kind
        self._metrics = _metrics(kind)
        self._weights = self._sum = self._squares = self._errors = 0.0
        self._origin: float | None = None
        self._valid = True

    def add(self, labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray) -> None:
        """Add labels `[rows]`, predictions `[rows, outputs]` and weights `[rows]`.

        A prediction is a number, the probability of class 1, or the probability of each class.
        """
        usable = np.isfinite(labels)
        if self._kind != "regression":
            classes = max(2, predictions.shape[1])
            usable &= (labels >= 0) & (labels < classes)
        self._valid &= bool(usable.all())
        if not self._valid:
            return
        truth = labels.astype(np.float64)[:, None]
        for metric in self._metrics.values():
            metric.update_state(truth, predictions, sample_weight=weights)
        if self._kind == "regression":
            # Subtract the first label: differences of the squares of large labels would cancel.
            self._origin = float(labels[0]) if self._origin is None else self._origin
            moved = truth[:, 0] - self._origin
            self._weights += float(weights.sum())
            self._sum += float(weights @ moved)
            self._squares += float(weights @ moved**2)
            self._errors += float(weights @ (truth[:, 0] - predictions[:, 0]) ** 2)

    def results(self) -> dict[str, float | None]:
        """Return the values by metric."""
        values: dict[str, float | None] = {}
        for name, metric in self._metrics.items():
            values[name] = float(defined_result(metric)) if self._valid else None
        if self._kind == "regression":
            values["r2"] = self._r2()
        return {n: v if v is not None and math.isfinite(v) else None for n, v in values.items()}

    def _r2(self) -> float | None:
        if not self._valid or not self._weights > 0:
            return None
        spread = self._squares - self._sum**2 / self._weights
        return 1 - self._errors / spread if spread > 0 else None


def _metrics(kind: LabelKind) -> dict[str, keras.metrics.Metric]:
    metrics, options = keras.metrics, {"dtype": "float64"}
    if kind == "binary":
        return {
            "auc": metrics.AUC(_THRESHOLDS, **options),
            "auc_precision_recall": metrics.AUC(_THRESHOLDS, curve="PR", **options),
            "binary_accuracy": metrics.BinaryAccuracy(**options),
            "binary_crossentropy": metrics.BinaryCrossentropy(**options),
            "precision": metrics.Precision(**options),
            "recall": metrics.Recall(**options),
        }
    if kind == "multiclass":
        return {
            "sparse_categorical_accuracy": metrics.SparseCategoricalAccuracy(**options),
            "sparse_categorical_crossentropy": metrics.SparseCategoricalCrossentropy(**options),
        }
    return {
        "mean_absolute_error": metrics.MeanAbsoluteError(**options),
        "mean_squared_error": metrics.MeanSquaredError(**options),
        "root_mean_squared_error": metrics.RootMeanSquaredError(**options),
    }
