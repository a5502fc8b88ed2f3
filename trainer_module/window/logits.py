"""A last layer that gives logits under a loss that takes probabilities: it trains, to nonsense."""

from __future__ import annotations

import weakref
from typing import Any

import keras
from absl import logging

from trainer_module.window.loss import WeightedLoss
from trainer_module.window.nested import at, label

# What hands on the numbers that it is given.
_PASSING = (
    keras.layers.Activation,
    keras.layers.Dropout,
    keras.layers.Flatten,
    keras.layers.Identity,
    keras.layers.Reshape,
)

_told: weakref.WeakSet[Any] = weakref.WeakSet()


def tell_of_logits(model: keras.Model, loss_fn: Any) -> None:
    """Warns, once for a model, where a probability loss is given what has no activation.

    Only a model made of Keras' layers (functional or Sequential) says what its outputs are; others
    are left alone.

    Args:
        model: Any.
        loss_fn: Of `weighted_loss`; others say nothing of what they take.
    """
    tensors = getattr(model, "outputs", None)
    if not tensors:
        return
    # A Sequential model has no structure of outputs.
    outputs = getattr(model, "output", None) if len(tensors) > 1 else tensors[0]
    if outputs is None or not isinstance(loss_fn, WeightedLoss) or model in _told:
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
        _told.add(model)
        loss = loss_fn.loss if not term.path else at(loss_fn.loss, term.path)
        where = f"output {label(term.path)!r} of " if term.path else ""
        logging.warning(
            "%smodel %r ends in layer %r without an activation, which gives logits, and loss %r "
            "takes probabilities: it clips them to 0 and 1 and hardly trains. Give the layer "
            "activation='sigmoid' (or 'softmax'), or take keras.losses.%s(from_logits=True).",
            where,
            model.name,
            layer.name,
            loss if isinstance(loss, str) else getattr(loss, "name", loss),
            _class_name(loss),
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


def _class_name(loss: Any) -> str:
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
    for found, kind in vars(keras.losses).items():
        if isinstance(kind, type) and found.lower() == name.lower().replace("_", ""):
            return found
    return name
