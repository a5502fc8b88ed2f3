"""Activations that are not kept: a layer that runs again in the backward pass."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from shared_core.nearest import nearest
from trainer_module.stages.custom_gradient import custom_gradient, uses_custom_gradient


def recompute(layer: keras.layers.Layer) -> keras.layers.Layer:
    """Returns the layer, which in windows keeps its inputs alone and runs again for its gradient.

    The second run has the first one's variables, masks and random numbers, so that the gradient is
    what it was, for one more forward pass in time. A layer that holds others (a block, a
    Sequential, a stage) drops all that they make in between. Outside of windows (`fit`, evaluation,
    export) the layer is what it was.

    Args:
        layer: Of any kind, built or not; it is changed.
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
    """Marks a model's layers by name, those inside of other layers too.

    Raises:
        ValueError: There is no layer of a name, told as the value of `field`.
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
    """Returns whether `recompute` was called on it."""
    return getattr(layer.call, "recomputes", False)


def _whole(layer: keras.layers.Layer) -> Any:
    """Returns the layer's own call, training mode and casts included: none is under way then."""

    def again(*args: Any, **kwargs: Any) -> Any:
        return layer(*args, **{**kwargs, "training": True})

    return again


def _is_symbolic(*structures: Any) -> bool:
    return any(isinstance(x, keras.KerasTensor) for x in tf.nest.flatten(structures))
