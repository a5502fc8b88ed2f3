"""Name the operations of each layer while a step is traced, and find the layer of an operation.

Keras opens a scope with the layer's name, to which TensorFlow appends a number if the name is in
use, so that "dense_1" may be the layer "dense". Here each layer has a number in the scope.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from trainer_module.common.layers import replaced_calls

_NUMBER = re.compile(r"\blayer\.(\d+)(?:_\d+)?/")


@contextlib.contextmanager
def layer_scopes(model: keras.Model) -> Iterator[list[str]]:
    """Give operations that are traced in the block the scopes of their layers.

    The layers have their own `call` again after the block.

    Args:
        model: The model to trace; nested layers count too.

    Yields:
        The names of the layers by their numbers, for `layer_of`.
    """
    layers: list[Any] = [
        layer
        for layer in model._flatten_layers(include_self=False)
        if not isinstance(layer, keras.layers.InputLayer)
    ]
    with replaced_calls((layer, _scoped(layer.call, i)) for i, layer in enumerate(layers)):
        yield [str(layer.name) for layer in layers]


def layer_of(name: str, layers: list[str]) -> str | None:
    """Return the innermost layer of an operation by its name; None for an operation of none."""
    found = _NUMBER.findall(name)
    return layers[int(found[-1])] if found else None


def _scoped(call: Any, number: int) -> Any:
    @functools.wraps(call)
    def scoped(*args: Any, **kwargs: Any) -> Any:
        with tf.name_scope(f"layer.{number}"):
            return call(*args, **kwargs)

    return scoped
