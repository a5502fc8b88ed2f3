"""Recompute a layer's activations in the backward pass instead of keeping them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from shared_core.nearest import nearest
from trainer_module.stages.custom_gradient import custom_gradient, uses_custom_gradient


def recompute(layer: keras.layers.Layer) -> keras.layers.Layer:
    """Make a layer keep only its inputs in windows and run again for its gradient.

    The second run has the variables, masks and random numbers of the first, so the gradient is the
    same. The cost is the time of one more forward pass. A layer that contains other layers (a
    block, a Sequential, a stage) drops all their intermediate activations. Outside of windows
    (`fit`, evaluation, export) the layer's behaviour does not change.

    Args:
        layer: Any layer, built or not; it is changed in place.

    Returns:
        The layer.
    """
    if is_recomputed(layer):
        return layer
    call = layer.call

    def call_again(*args: Any, **kwargs: Any) -> Any:
        if not uses_custom_gradient(layer) or _is_symbolic(args, kwargs):
            return call(*args, **kwargs)
        return custom_gradient(layer, call, _whole(layer), args, kwargs, again=True)

    function: Any = call_again
    function.recomputes = True
    function.jit_compile_error = (
        f"XLA decides itself what it keeps, and would keep what layer {layer.name!r} is to compute "
        "again; leave jit_compile off, or recompute."
    )
    layer.call = call_again
    return layer


def recompute_layers(model: keras.Model, names: Iterable[str], *, field: str = "recompute") -> None:
    """Call `recompute` on a model's layers by name, including nested layers.

    Args:
        model: A Keras model; its layers are changed in place.
        names: Names of layers.
        field: Name of the setting, for error messages.

    Raises:
        ValueError: The model has no layer of a name.
    """
    found: dict[str, list[Any]] = {}
    for layer in model._flatten_layers(include_self=False):
        found.setdefault(layer.name, []).append(layer)
    for name in names:
        if name not in found:
            raise ValueError(
                f"{field}={name!r} is no layer of model {model.name!r}; {nearest(name, found)}"
            )
        for layer in found[name]:
            recompute(layer)


def is_recomputed(layer: keras.layers.Layer) -> bool:
    """Return whether `recompute` was called on the layer."""
    return getattr(layer.call, "recomputes", False)


def _whole(layer: keras.layers.Layer) -> Any:
    """Return a call of the whole layer in training mode, including its casts.

    The backward pass uses it, where no call of the layer is active.
    """

    def again(*args: Any, **kwargs: Any) -> Any:
        return layer(*args, **{**kwargs, "training": True})

    return again


def _is_symbolic(*structures: Any) -> bool:
    return any(isinstance(x, keras.KerasTensor) for x in tf.nest.flatten(structures))
