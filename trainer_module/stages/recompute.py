"""Recompute a layer's activations in the backward pass instead of keeping them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import keras
import tensorflow as tf

from shared_core.nearest import nearest
from trainer_module.common.tensors import Tensors
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

    def call_recomputed(*args: object, **kwargs: object) -> Tensors:
        if not uses_custom_gradient(layer) or _is_symbolic(args, kwargs):
            return call(*args, **kwargs)
        return custom_gradient(layer, call, _whole(layer), args, kwargs, again=True)

    vars(call_recomputed).update(
        recomputes=True,
        jit_compile_error=(
            "XLA decides which activations it keeps, and would keep those that layer "
            f"{layer.name!r} recomputes; leave jit_compile off, or recompute."
        ),
    )
    layer.call = call_recomputed
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
    found: dict[str, list[keras.layers.Layer]] = {}
    for layer in model._flatten_layers(include_self=False):
        found.setdefault(layer.name, []).append(layer)
    for name in names:
        if name not in found:
            raise ValueError(
                f"{field}={name!r} is not a layer of model {model.name!r}; {nearest(name, found)}"
            )
        for layer in found[name]:
            recompute(layer)


def is_recomputed(layer: keras.layers.Layer) -> bool:
    """Return whether `recompute` was called on the layer."""
    return getattr(layer.call, "recomputes", False)


def _whole(layer: keras.layers.Layer) -> Callable[..., Tensors]:
    """Return a call of the whole layer in training mode, including its casts.

    The backward pass uses it, where no call of the layer is active.
    """

    def call(*args: object, **kwargs: object) -> Tensors:
        return layer(*args, **{**kwargs, "training": True})

    return call


def _is_symbolic(*structures: object) -> bool:
    return any(isinstance(x, keras.KerasTensor) for x in tf.nest.flatten(structures))
