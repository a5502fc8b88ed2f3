"""Initialize the linear part of the default model with a linear model of the training rows.

A ridge or logistic regression (`linear_models`) is fitted on a sample of the transformed rows. Its
coefficients become the initial weights of the layers `linear` and `linear_ids`. The output of the
dense layers starts at 0. So the untrained model already predicts what the regression predicts, and
the training learns what a linear model cannot express.

The same sample determines the label scale of a regression. It is the scale for which a ridge
regression has the smallest mean absolute error, in the unit of the label, on held-out rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from trainer_module.baselines.linear_models import (
    Columns,
    LinearModel,
    Sample,
    fit_linear,
    fit_ridge,
    max_rows,
    sample_rows,
    why_no_linear,
)
from trainer_module.common.tensors import Json
from trainer_module.data.input_pipeline import Examples
from trainer_module.data.label_scale import LabelScale, is_loss_of_differences
from trainer_module.devices.worker_group import WorkerGroup
from trainer_module.model.model_context import ModelContext

_FOLDS = 5
_MAX_FOLD_PRODUCTS = 400_000_000  # rows x columns² of a fold: about a second on one core
_NO_ROWS = -10.0  # logit of a class that the sample lacks


class LinearStart(NamedTuple):
    """The linear model and the label scale that were chosen on a sample of the training rows.

    The model, fitted on scaled labels, is None if the features have no columns or too many. The
    scale is the index of the chosen one.
    """

    linear: LinearModel | None
    scale: int

    def to_json(self) -> dict[str, Json]:
        """Return the fields as JSON values, which keep every bit of a float."""
        linear = self.linear and [each.tolist() for each in self.linear]
        return {"linear": linear, "scale": self.scale}

    @classmethod
    def from_json(cls, values: dict[str, Json]) -> LinearStart:
        """Return the object whose `to_json` returned the values."""
        linear = values["linear"]
        return cls(linear and LinearModel(*map(np.asarray, linear)), values["scale"])


def has_linear_start(context: ModelContext) -> bool:
    """Return whether a training starts at a linear model.

    This requires the default model with `linear: true`, one output per row or class, and a loss
    that a ridge or logistic regression brings near its minimum.
    """
    config = context.config
    if config.model_fn is not None or not config.model.linear:
        return False
    if context.label_kind == "regression" and context.outputs != 1:
        return False
    if context.label_kind == "regression":
        return is_loss_of_differences(config.loss)
    return config.loss is None or "crossentropy" in config.loss.lower().replace("_", "")


def find_linear_start(
    context: ModelContext,
    examples: Examples,
    rows: int,
    scales: Sequence[LabelScale | None],
    workers: WorkerGroup,
) -> LinearStart | None:
    """Fit the linear start on the chief and return it on all workers; None if it does not apply.

    Args:
        context: Kinds of the label and the features.
        examples: The training rows, with unscaled labels.
        rows: Number of training rows.
        scales: Label scales to choose from; None is the unscaled label. Use (None,) for classes.
        workers: The workers of the training.

    Raises:
        ValueError: No training row has a usable label and a weight above 0.
        ModuleNotFoundError: scikit-learn is not installed.
    """
    if not has_linear_start(context):
        return None
    found = None
    if workers.is_chief:
        found = _fit_linear_start(context, examples, rows, scales).to_json()
    return LinearStart.from_json(workers.broadcast_from_chief("the linear start", found))


def _fit_linear_start(
    context: ModelContext,
    examples: Examples,
    rows: int,
    scales: Sequence[LabelScale | None],
) -> LinearStart:
    """Fit a linear model on the label scale with the smallest held-out error."""
    columns = Columns(context, list(context.feature_spec))
    reason = why_no_linear(columns, rows, context)
    if columns.width == columns.terms:
        reason = "linear: no feature is a number or an id"
    if reason:
        logging.info("The linear part of the model starts at 0 (%s).", reason)
        return LinearStart(None, 0)
    read = dataclasses.replace(examples.narrowed(context.feature_spec), replicas=None)
    sample = sample_rows(read, columns, rows, max_rows(columns, context))
    # The model has no linear weights for the terms of texts.
    sample = sample._replace(
        rows=sample.rows[:, : columns.width - columns.terms],
        weights=_with_class_weights(sample, context),
    )
    chosen = 0
    if len(scales) > 1:
        errors = [_held_out_error(sample, scale) for scale in scales]
        chosen = int(np.argmin(errors))
        logging.info(
            "Label scale %s: a linear model has a mean absolute error of %s.",
            _name(scales[chosen]),
            ", ".join(f"{e:.6g} ({_name(s)})" for e, s in zip(errors, scales, strict=True)),
        )
    sample = sample._replace(labels=_scaled(sample.labels, scales[chosen]))
    return LinearStart(fit_linear(sample, context), chosen)


def set_linear_weights(model: keras.Model, context: ModelContext, linear: LinearModel) -> None:
    """Assign a model of the columns of a context, without terms, to its `default_model`."""
    kernel, bias = linear.kernel, np.maximum(linear.bias, _NO_ROWS)
    if context.label_kind == "binary":  # a sigmoid takes the difference of two logits
        kernel, bias = kernel[:, 1:] - kernel[:, :1], bias[1:] - bias[:1]
    columns = Columns(context, list(context.feature_spec))
    layers = {layer.name: layer for layer in model.layers}
    if columns.floats:
        layers["linear"].kernel.assign(kernel[: columns.floats])
    if columns.id_widths:
        table, start = [], columns.floats
        for count, width in columns.id_widths:
            # All ids from the last column's on share its weight.
            table.append(kernel[start + np.minimum(np.arange(count), width - 1)])
            start += width
        layers["linear_ids"].table.assign(np.concatenate(table))
    layers["outputs"].bias.assign(bias)


def _with_class_weights(sample: Sample, context: ModelContext) -> np.ndarray:
    weights = context.config.class_weight
    if not isinstance(weights, dict):
        return sample.weights
    by_class = np.array([weights.get(number, 1.0) for number in range(max(2, context.outputs))])
    return sample.weights * by_class[np.clip(sample.labels, 0, len(by_class) - 1).astype(int)]


def _held_out_error(sample: Sample, scale: LabelScale | None) -> float:
    """Return the weighted mean absolute error over 5 folds, in the unit of the label."""
    width = max(1, sample.rows.shape[1])
    order = np.random.default_rng(0).permutation(len(sample.labels))
    order = order[: max(10 * _FOLDS, _MAX_FOLD_PRODUCTS // width**2)]
    rows, labels, weights, floats = sample
    scaled = _scaled(labels, scale)
    errors = total = 0.0
    for fold in range(_FOLDS):
        held_out = order[fold::_FOLDS]
        fitted = np.delete(order, np.s_[fold::_FOLDS])
        if not len(held_out) or not weights[fitted].sum() > 0:
            continue
        linear = fit_ridge(Sample(rows[fitted], scaled[fitted], weights[fitted], floats))
        predicted = linear(rows[held_out])
        if scale is not None:
            predicted = scale.unscaled(tf.constant(predicted)).numpy()
        error = np.abs(predicted[:, 0] - labels[held_out])
        errors += float(weights[held_out] @ error)
        total += float(weights[held_out].sum())
    return errors / total if total > 0 else np.inf


def _scaled(labels: np.ndarray, scale: LabelScale | None) -> np.ndarray:
    if scale is None:
        return labels
    return scale.scaled(tf.constant(labels[:, None])).numpy()[:, 0].astype(np.float64)


def _name(scale: LabelScale | None) -> str:
    return "none" if scale is None else scale.name
