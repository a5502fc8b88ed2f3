"""Metrics of a constant and of a linear model on the rows that the model is evaluated on.

    constant: the mean, for the absolute error the median; for classes, their shares
    linear:   ridge or logistic regression of scikit-learn on the transformed features of the model

Both are fitted on at most 100,000 training rows, sampled evenly; on fewer if there are many
columns or classes, so that rows x columns <= 20 million and rows x columns x classes <= 50 million.
They are evaluated on every eval row, with the row weights that the Evaluator uses.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from trainer_module.baselines.columns import MAX_COLUMNS, Columns
from trainer_module.baselines.linear_models import fit_logistic, fit_ridge
from trainer_module.baselines.record import FILE, Baseline, Baselines
from trainer_module.baselines.scores import Scores
from trainer_module.baselines.strongest import strongest_column
from trainer_module.common.whole_files import write_text
from trainer_module.config import TrainerConfig
from trainer_module.data.input_pipeline import DataSummary, Examples
from trainer_module.model.data_context import TransformedData, model_context
from trainer_module.model.model_context import ModelContext

_MAX_ROWS = 100_000
_MAX_NUMBERS = 20_000_000
_MAX_PRODUCTS = 50_000_000
_MIN_ROWS = 1000
_BATCH = 8192

Predict = Callable[[dict[str, np.ndarray]], np.ndarray]


class _Sample(NamedTuple):
    rows: np.ndarray
    labels: np.ndarray
    weights: np.ndarray


def compute_baselines(
    context: ModelContext,
    data: TransformedData,
    summary: DataSummary,
    inputs: Sequence[str],
) -> Baselines:
    """Fit the baselines and evaluate them.

    Args:
        context: Kinds of the label and the features.
        data: Files of the train and eval splits.
        summary: Summary of the training rows.
        inputs: Names of the transformed features that the model takes.

    Raises:
        ValueError: There are no eval rows, or the label is not one number per row.
    """
    if not data.eval_files:
        raise ValueError("the examples have no eval split to evaluate baselines on.")
    kind = context.label_kind
    if kind == "regression" and context.outputs != 1:
        raise ValueError(
            f"trainer.label={context.label!r} has {context.outputs} numbers per row, but baselines "
            "support one."
        )
    columns = Columns(context, inputs)
    outputs = context.outputs if kind == "multiclass" else 1
    most = min(
        _MAX_ROWS,
        _MAX_NUMBERS // max(1, columns.width),
        _MAX_PRODUCTS // max(1, columns.width * outputs),
    )
    left_out = _why_no_linear(columns, summary, most, outputs)
    # The Evaluator uses the weight of Transform; training may use another one.
    weight = data.layout.weight if data.layout is not None else data.train.weight
    if weight not in inputs:
        data = data._replace(train=dataclasses.replace(data.train, weight=weight))
    read = data.train.narrowed(inputs)
    sample = _sample(read.narrowed(()) if left_out else read, columns, summary.rows, most, left_out)
    linear = None if left_out else _fit_linear(context, columns, sample)
    constants = _constants(context, sample)
    scores = {name: Scores(kind) for name in (*constants, *(["linear"] if linear else []))}
    eval_rows = 0
    evaluated = dataclasses.replace(read, files=data.eval_files)
    for features, label, *rest in evaluated.batches(_BATCH).as_numpy_iterator():
        labels = label[:, 0]
        weights = _weights(rest, len(labels))
        eval_rows += len(labels)
        for name, score in scores.items():
            if name == "linear" and linear is not None:
                predicted = linear(features)
            else:
                predicted = np.tile(constants[name][None, :], (len(labels), 1))
            score.add(labels, predicted, weights)
    found = [Baseline("constant", _describe(kind, constants), _constant_metrics(kind, scores))]
    if linear is not None:
        what = "least squares" if kind == "regression" else "logistic regression"
        found.append(
            Baseline("linear", f"{what} on {columns.width:,} columns", scores["linear"].results())
        )
    strongest = None if left_out else strongest_column(columns, sample.rows, sample.labels, kind)
    return Baselines(len(sample.labels), eval_rows, tuple(found), left_out, strongest)


def write_baselines(
    folder: str,
    data: TransformedData,
    summary: DataSummary,
    config: TrainerConfig,
    inputs: Sequence[str],
) -> None:
    """Write `baselines.json`; a failure is a warning, because the trained model is fine without.

    Args:
        folder: Folder of the run.
        data: Files of the train and eval splits.
        summary: Summary of the training rows.
        config: The training's configuration.
        inputs: Names of the transformed features that the model takes.
    """
    try:
        found = compute_baselines(model_context(config, data, summary), data, summary, inputs)
    except (ValueError, ImportError, MemoryError, np.linalg.LinAlgError) as error:
        logging.warning("Computed no baselines: %s", error)
        return
    write_text(os.path.join(folder, FILE), found.to_json())
    for each in found.baselines:
        shown = ", ".join(
            f"{name} {'undefined' if value is None else format(value, '.6g')}"
            for name, value in each.metrics.items()
        )
        logging.info("Baseline %s (%s): %s", each.name, each.is_what, shown)


def _why_no_linear(columns: Columns, summary: DataSummary, most: int, outputs: int) -> str:
    if columns.width == 0:
        return "linear: no feature is a number or an id"
    if columns.width > 2 * MAX_COLUMNS or most < min(_MIN_ROWS, summary.rows):
        return f"linear: {columns.width:,} columns and {outputs} output(s) take too long"
    return ""


def _sample(examples: Examples, columns: Columns, rows: int, most: int, left_out: str) -> _Sample:
    nth = -(-rows // (_MAX_ROWS if left_out else most))
    parts: list[_Sample] = []
    for features, label, *rest in examples.every(nth, _BATCH).as_numpy_iterator():
        matrix = np.zeros((len(label), 0)) if left_out else columns.matrix(features)
        parts.append(_Sample(matrix, label[:, 0], _weights(rest, len(label))))
    found = _Sample(*(np.concatenate(each) for each in zip(*parts, strict=True)))
    if not found.weights.sum() > 0:
        raise ValueError("the weights of the sampled training rows sum to 0.")
    return found


def _weights(rest: Sequence[np.ndarray], rows: int) -> np.ndarray:
    return rest[0].astype(np.float64) if rest else np.ones(rows)


def _fit_linear(context: ModelContext, columns: Columns, sample: _Sample) -> Predict:
    kind = context.label_kind
    classes = context.outputs if kind == "multiclass" else 2
    usable = np.isfinite(sample.labels) & (sample.weights > 0)
    if kind != "regression":
        usable &= (sample.labels >= 0) & (sample.labels < classes)
    if not usable.any():
        raise ValueError(f"no sampled training row has a usable trainer.label={context.label!r}.")
    if not usable.all():  # the matrix may have 160 MB
        sample = _Sample(*(each[usable] for each in sample))
    rows, labels, weights = sample
    if kind == "regression":
        predict = fit_ridge(rows, labels.astype(np.float64), weights)
    else:
        predict = fit_logistic(rows, labels.astype(np.int64), weights, classes=classes)
    first = 1 if kind == "binary" else 0
    return lambda features: predict(columns.matrix(features))[:, first:]


def _constants(context: ModelContext, sample: _Sample) -> dict[str, np.ndarray]:
    """Return the prediction `[outputs]` of each constant, by name."""
    labels, share = sample.labels.astype(np.float64), sample.weights / sample.weights.sum()
    if context.label_kind == "regression":
        return {
            "mean": np.array([share @ labels]),
            "median": np.array([weighted_median(labels, share)]),
        }
    if context.label_kind == "binary":
        return {"prior": np.array([share @ labels])}
    counts = np.bincount(labels.astype(np.int64), share, minlength=context.outputs)
    return {"prior": counts}


def weighted_median(values: np.ndarray, weights: np.ndarray) -> float:
    """Return the number that has half of the weight on either side."""
    order = np.argsort(values, kind="stable")
    values, reached = values[order], np.cumsum(weights[order])
    half = reached[-1] / 2
    low = int(np.searchsorted(reached, half * (1 - 1e-12)))
    high = int(np.searchsorted(reached, half * (1 + 1e-12), side="right"))
    high = min(high, len(values) - 1)
    return float((values[low] + values[high]) / 2)


def _constant_metrics(kind: str, scores: dict[str, Scores]) -> dict[str, float | None]:
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
