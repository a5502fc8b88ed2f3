"""Find the layers of a model that embed ids, and the columns whose ids they embed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from trainer_module.common.layers import replaced_calls
from trainer_module.model.default_model import PackedEmbedding


class IdEmbedding(NamedTuple):
    """One call of a layer that gets ids and returns numbers.

    Attributes:
        layer: Name of the layer.
        places: (feature, position) of each id that it gets, in order; empty if unknown.
        separate: Whether the output has one part of equal size for each id, in their order.
    """

    layer: str
    places: tuple[tuple[str, int], ...]
    separate: bool


def find_id_embeddings(
    model: keras.Model, specs: Mapping[str, tf.TensorSpec]
) -> dict[str, IdEmbedding]:
    """Return the calls of layers whose inputs include ids and whose outputs are floats, by name.

    The model is called once, with a number in place of each id that says where it is from. Layers
    that contain other layers are not considered. Further calls of a layer are named `layer_1`,
    `layer_2`, ... as in `InputGradients.embeddings`.

    Args:
        model: A built Keras model that takes a dict of features.
        specs: Feature -> its tensor `[None, ...]`.
    """
    places: list[tuple[str, int]] = []
    features = {}
    for name, spec in specs.items():
        shape = [2, *spec.shape[1:]]
        if spec.dtype.is_integer:
            width = spec.shape[1:].num_elements()
            row = np.arange(len(places), len(places) + width)
            places += [(name, position) for position in range(width)]
            features[name] = np.reshape([row, row], shape)
        else:
            features[name] = tf.zeros(shape, spec.dtype)
    if not places:
        return {}
    # The second row has other numbers, which shows whether a layer gets them unchanged.
    step = np.array([0, len(places)])
    for name, numbers in features.items():
        if isinstance(numbers, np.ndarray):
            moved = numbers + step.reshape([2] + [1] * (numbers.ndim - 1))
            features[name] = tf.constant(moved, specs[name].dtype)
    found: dict[str, IdEmbedding] = {}

    def record(name: str, layer: keras.layers.Layer, ids: list[tf.Tensor], output: Any) -> None:
        known = _places(ids, places)
        separate = bool(known) and (
            len(known) == 1
            or isinstance(layer, PackedEmbedding)
            or output.shape[:-1] == ids[0].shape
        )
        found[name] = IdEmbedding(layer.name, known, separate)

    with _watched(model, record):
        model(features, training=False)
    return found


def _places(ids: list[tf.Tensor], places: list[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    if len(ids) != 1 or ids[0].shape.rank is None or ids[0].shape[0] != 2:
        return ()
    first, second = np.reshape(ids[0].numpy(), [2, -1])
    if not np.array_equal(second, first + len(places)):
        return ()
    if not all(0 <= number < len(places) for number in first):
        return ()
    return tuple(places[number] for number in first)


@contextlib.contextmanager
def _watched(model: keras.Model, record: Callable[..., None]) -> Iterator[None]:
    """Report calls with ids that return floats; such a call gets id 0 in place of each id."""

    def is_id(value: Any) -> bool:
        return isinstance(value, tf.Tensor) and value.dtype.is_integer

    def watch(layer: keras.layers.Layer, call: Callable[..., Any]) -> Callable[..., Any]:
        number = 0

        def watched(*args: Any, **kwargs: Any) -> Any:
            nonlocal number
            name = f"{layer.name}_{number}" if number else layer.name
            number += 1
            ids = [value for value in tf.nest.flatten((args, kwargs)) if is_id(value)]
            if not ids:
                return call(*args, **kwargs)
            valid, options = tf.nest.map_structure(
                lambda value: tf.zeros_like(value) if is_id(value) else value, (args, kwargs)
            )
            output = call(*valid, **options)
            if not isinstance(output, tf.Tensor) or not output.dtype.is_floating:
                return call(*args, **kwargs)
            record(name, layer, ids, output)
            return output

        return watched

    leaves = [
        layer
        for layer in model._flatten_layers(include_self=False)
        if len(list(layer._flatten_layers())) == 1
    ]
    with replaced_calls((layer, watch(layer, layer.call)) for layer in leaves):
        yield
