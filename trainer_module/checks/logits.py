"""Warn if a model returns logits and its loss expects probabilities."""

from __future__ import annotations

import keras

from trainer_module.checks.warn_once import warn_once
from trainer_module.common.tensors import LossLike
from trainer_module.losses.weighted_loss import WeightedLoss, at, path_name

# Layers that pass on their inputs, apart from an activation.
_PASSING = (
    keras.layers.Activation,
    keras.layers.Dropout,
    keras.layers.Flatten,
    keras.layers.Identity,
    keras.layers.Reshape,
)


def warn_if_logits(model: keras.Model, loss_fn: LossLike) -> None:
    """Warn, once per model, if a loss of probabilities gets outputs without an activation.

    The check needs a functional or Sequential model, which shows the layers of its outputs.
    """
    tensors = getattr(model, "outputs", None)
    if not tensors:
        return
    # A Sequential model has no structure of outputs.
    outputs = getattr(model, "output", None) if len(tensors) > 1 else tensors[0]
    if outputs is None or not isinstance(loss_fn, WeightedLoss):
        return
    for path in [term.path for term in loss_fn.terms if term.loss.probabilities]:
        try:
            layer = _linear_layer(at(outputs, path if len(tensors) > 1 else ()))
        except KeyError:  # a list of one, or outputs of other names, which the loss rejects
            continue
        if layer is None:
            continue
        loss = loss_fn.loss if not path else at(loss_fn.loss, path)
        name = loss if isinstance(loss, str) else getattr(loss, "name", loss)
        output = f"output {path_name(path)!r} of " if path else ""
        warn_once(
            f"{output}model {model.name!r} ends in layer {layer.name!r} without an activation, "
            f"which gives logits, and loss {name!r} takes probabilities: it clips them to 0 and 1 "
            "and hardly trains. Give the last layer activation='sigmoid' (or 'softmax'), or use "
            f"keras.losses.{_class_name(loss)}(from_logits=True).",
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
