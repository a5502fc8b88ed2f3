"""A last layer that gives logits under a loss that takes probabilities: it trains, to nonsense."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from trainer_module.checks.warn_once import warn_once
from trainer_module.common.tensors import LossLike, Tensors
from trainer_module.losses.nested import Path, at, only, path_name
from trainer_module.losses.weighted_loss import WeightedLoss

# What hands on the numbers that it is given.
_PASSING = (
    keras.layers.Activation,
    keras.layers.Dropout,
    keras.layers.Flatten,
    keras.layers.Identity,
    keras.layers.Reshape,
)

_ROUNDING = 1e-2  # of probabilities in 16 bits


def warn_if_logits(model: keras.Model, loss_fn: LossLike) -> None:
    """Warns, once for a model, where a probability loss is given what has no activation.

    Only a model made of Keras' layers (functional or Sequential) says what its outputs are; of
    others `warn_if_not_probabilities` sees what they give.

    Args:
        model: Any.
        loss_fn: Of `weighted_loss`; others say nothing of what they take.
    """
    tensors = getattr(model, "outputs", None)
    if not tensors:
        return
    # A Sequential model has no structure of outputs.
    outputs = getattr(model, "output", None) if len(tensors) > 1 else tensors[0]
    if outputs is None or not isinstance(loss_fn, WeightedLoss):
        return
    for term in loss_fn.terms:
        if not term.loss.probabilities:
            continue
        try:
            layer = _linear_layer(at(outputs, term.path if len(tensors) > 1 else ()))
        except KeyError:  # a list of one, or outputs of other names, which the loss refuses
            continue
        if layer is None:
            continue
        ends = f"ends in layer {layer.name!r} without an activation, which gives logits"
        _warn(model, loss_fn, term.path, ends)


def warn_if_not_probabilities(model: keras.Model, loss_fn: LossLike, outputs: Tensors) -> None:
    """Warns, once for a model, where a probability loss is given what is no probability.

    Args:
        model: Any; one that `warn_if_logits` knows is left alone.
        loss_fn: Of `weighted_loss`; others say nothing of what they take.
        outputs: What the model gave for some rows.
    """
    if getattr(model, "outputs", None) or not isinstance(loss_fn, WeightedLoss):
        return
    for term in loss_fn.terms:
        if not term.loss.probabilities:
            continue
        try:
            values = tf.cast(at(outputs, term.path) if term.path else only(outputs), tf.float64)
        except (KeyError, TypeError, ValueError):  # outputs that the loss refuses itself
            continue
        low, high = float(tf.reduce_min(values)), float(tf.reduce_max(values))
        if low < -_ROUNDING or high > 1 + _ROUNDING:
            _warn(model, loss_fn, term.path, f"gave {low:.3g} to {high:.3g} for made-up rows")


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


def _linear_layer(tensor: Any) -> Any:
    """Returns the layer with weights whose plain sums an output is, or None."""
    while True:
        history = getattr(tensor, "_keras_history", None)
        layer: Any = getattr(history, "operation", None)
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
