"""Warn if a model returns logits and its loss expects probabilities."""

from __future__ import annotations

import keras
import tensorflow as tf

from trainer_module.checks.warn_once import warn_once
from trainer_module.common.tensors import LossLike, Tensors
from trainer_module.losses.weighted_loss import OutputTerm, Path, WeightedLoss, at, only, path_name

# Layers that pass on their inputs, apart from an activation.
_PASSING = (
    keras.layers.Activation,
    keras.layers.Dropout,
    keras.layers.Flatten,
    keras.layers.Identity,
    keras.layers.Reshape,
)

_ROUNDING = 1e-2  # of probabilities in 16 bits


def warn_if_logits(model: keras.Model, loss_fn: LossLike) -> None:
    """Warn, once per model, if a loss of probabilities gets outputs without an activation.

    The check needs a functional or Sequential model, which shows the layers of its outputs. For
    other models, use `warn_if_not_probabilities`.

    Args:
        model: A Keras model.
        loss_fn: The result of `weighted_loss`; other loss functions are not checked.
    """
    tensors = getattr(model, "outputs", None)
    if not tensors:
        return
    # A Sequential model has no structure of outputs.
    outputs = getattr(model, "output", None) if len(tensors) > 1 else tensors[0]
    if outputs is None or not isinstance(loss_fn, WeightedLoss):
        return
    for term in _terms_of_probabilities(loss_fn):
        try:
            layer = _linear_layer(at(outputs, term.path if len(tensors) > 1 else ()))
        except KeyError:  # a list of one, or outputs of other names, which the loss rejects
            continue
        if layer is None:
            continue
        ends = f"ends in layer {layer.name!r} without an activation, which gives logits"
        _warn(model, loss_fn, term.path, ends)


def warn_if_not_probabilities(model: keras.Model, loss_fn: LossLike, outputs: Tensors) -> None:
    """Warn, once per model, if a loss of probabilities gets outputs outside of 0 to 1.

    Args:
        model: A Keras model; functional and Sequential models are not checked (see
            `warn_if_logits`).
        loss_fn: The result of `weighted_loss`; other loss functions are not checked.
        outputs: Outputs of the model for some rows.
    """
    if getattr(model, "outputs", None) or not isinstance(loss_fn, WeightedLoss):
        return
    for term in _terms_of_probabilities(loss_fn):
        try:
            values = tf.cast(at(outputs, term.path) if term.path else only(outputs), tf.float64)
        except (KeyError, TypeError, ValueError):  # outputs that the loss rejects
            continue
        low, high = float(tf.reduce_min(values)), float(tf.reduce_max(values))
        if low < -_ROUNDING or high > 1 + _ROUNDING:
            _warn(
                model,
                loss_fn,
                term.path,
                f"gave {low:.3g} to {high:.3g} for rows of the first batch",
            )


def _terms_of_probabilities(loss_fn: WeightedLoss) -> list[OutputTerm]:
    return [term for term in loss_fn.terms if term.loss.probabilities]


def _warn(model: keras.Model, loss_fn: WeightedLoss, path: Path, gives: str) -> None:
    loss = loss_fn.loss if not path else at(loss_fn.loss, path)
    name = loss if isinstance(loss, str) else getattr(loss, "name", loss)
    output = f"output {path_name(path)!r} of " if path else ""
    warn_once(
        f"{output}model {model.name!r} {gives}, and loss {name!r} takes probabilities: it clips "
        "them to 0 and 1 and hardly trains. Give the last layer activation='sigmoid' (or "
        f"'softmax'), or use keras.losses.{_class_name(loss)}(from_logits=True).",
        about=model,
        topic="logits",
    )


def _linear_layer(tensor: keras.KerasTensor) -> keras.layers.Layer | None:
    """Return the layer that computes an output without an activation, or None."""
    while True:
        history = getattr(tensor, "_keras_history", None)
        layer: keras.layers.Layer = getattr(history, "operation", None)
        if isinstance(layer, keras.Model) and getattr(layer, "outputs", None):
            if len(layer.outputs) != 1:
                return None
            tensor = layer.outputs[0]
            continue
        activation = getattr(layer, "activation", None)
        if activation is not None and activation is not keras.activations.linear:
            return None
        if not isinstance(layer, _PASSING):
            return layer if activation is not None else None
        (tensor,) = keras.tree.flatten(layer.input)


def _class_name(loss: LossLike) -> str:
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
    for found, kind in vars(keras.losses).items():
        if isinstance(kind, type) and found.lower() == name.lower().replace("_", ""):
            return found
    return name
