"""Differentiate an output with respect to inputs, and to the outputs of layers that embed ids."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from shared_core.nearest import nearest
from trainer_module.common.replaced_calls import replaced_calls
from trainer_module.common.tensors import Tensors
from trainer_module.gradients.arguments import check_function
from trainer_module.window.micro_batch import upcast_to_float32

# (name, tensor) -> the tensor that the model gets in its place.
Change = Callable[[str, tf.Tensor], tf.Tensor]


class InputGradients(NamedTuple):
    """One number for each number that goes into the model.

    Attributes:
        inputs: Structure of the features, a tensor `[rows, ...]` for each floating-point one, and
            None for all others.
        embeddings: Layer -> `[rows, ...]`, of the shape of the layer's output. Further calls of the
            same layer have the names `layer_1`, `layer_2`, ...
        change: f(x) - f(baseline), `[rows]`; integrated gradients only.
        gap: `change` minus the sum of a row's attributions, `[rows]`: 0 if the integral is exact;
            integrated gradients only.
    """

    inputs: Any
    embeddings: dict[str, tf.Tensor]
    change: tf.Tensor | None = None
    gap: tf.Tensor | None = None


class Point(NamedTuple):
    """An output and its gradients at one point, for each row.

    Attributes:
        value: The output, `[rows]`, at least float32.
        tensors: Name -> what the model got, `[rows, ...]`.
        gradients: Name -> the gradient of `value`, `[rows, ...]`.
    """

    value: tf.Tensor
    tensors: dict[str, tf.Tensor]
    gradients: dict[str, tf.Tensor]


class Differentiator(NamedTuple):
    """What is differentiated by what.

    Attributes:
        model: A built Keras model.
        output: Function of the model's outputs that returns one number per row, or None.
        layers: Layers that embed ids, by name.
    """

    model: keras.Model
    output: Callable[[Any], tf.Tensor] | None
    layers: dict[str, keras.layers.Layer]

    def at(self, features: Any, change: Change | None = None) -> Point:
        """Return output and gradients in inference mode.

        Args:
            features: Structure of tensors `[rows, ...]`.
            change: Replaces each floating-point input, named by its number, and each output of
                `layers`; the gradients are those at the replacement.
        """
        tensors: dict[str, tf.Tensor] = {}
        with tf.GradientTape(watch_accessed_variables=False) as tape:

            def enter(name: str, tensor: tf.Tensor) -> tf.Tensor:
                tensor = tf.identity(tensor) if change is None else change(name, tensor)
                tape.watch(tensor)
                tensors[name] = tensor
                return tensor

            flat = [
                enter(_input_name(index), tensor) if tensor.dtype.is_floating else tensor
                for index, tensor in enumerate(tf.nest.flatten(features))
            ]
            with _intercepted(self.layers, enter):
                outputs = self.model(tf.nest.pack_sequence_as(features, flat), training=False)
            chosen = choose_output(outputs, self.output)
            value = upcast_to_float32(_one_per_row(chosen, given=self.output is not None))
            # Rows do not depend on each other, so the gradient of the sum has each row's.
            total = tf.reduce_sum(value)
        zero = tf.UnconnectedGradients.ZERO
        gradients = tape.gradient(total, tensors, unconnected_gradients=zero)
        return Point(value, tensors, gradients)

    def pack(self, features: Any, found: Mapping[str, tf.Tensor]) -> InputGradients:
        """Return the tensors by name in the structure of the features."""
        flat = [found.get(_input_name(i)) for i in range(len(tf.nest.flatten(features)))]
        layers = {name: t for name, t in found.items() if not name.startswith(_INPUT)}
        return InputGradients(tf.nest.pack_sequence_as(features, flat), layers)


def differentiator(
    model: keras.Model,
    features: Any,
    output: Callable[[Any], tf.Tensor] | None,
    embeddings: Sequence[str] | None,
) -> Differentiator:
    """Return what is differentiated by what, after checking it.

    Raises:
        ValueError: `output` is not a function, a layer does not exist, or there is neither an
            input of floats nor a layer.
    """
    check_output(output)
    names = _layer_names(embeddings)
    known = {layer.name: layer for layer in model._flatten_layers(include_self=False)}
    for name in names:
        if name not in known:
            raise ValueError(
                f"embeddings={names}: the model has no layer {name!r}, {nearest(name, known)}"
            )
    if not names:
        floating_tensors(features)
    return Differentiator(model, output, {name: known[name] for name in names})


def floating_tensors(features: Tensors) -> list[tf.Tensor]:
    """Return the floating-point tensors of a structure.

    Raises:
        ValueError: There are none.
    """
    floating = [tensor for tensor in tf.nest.flatten(features) if tensor.dtype.is_floating]
    if not floating:
        types = ", ".join(tensor.dtype.name for tensor in tf.nest.flatten(features))
        raise ValueError(
            f"no input is a tensor of floats ({types}): ids have no gradient. For the gradients of "
            "their embeddings, use input_gradients with embeddings=[names of layers]."
        )
    return floating


def check_output(output: Any) -> None:
    """Raise ValueError unless `output` is None or a function."""
    check_function("output", output, example="lambda outputs: outputs[:, 0]")


def choose_output(outputs: Any, output: Callable[[Any], Any] | None) -> Any:
    """Return the tensor that `output` makes of the model's outputs; None: the outputs.

    Raises:
        ValueError: The function does not return a tensor.
    """
    if output is None:
        return outputs
    found = output(outputs)
    try:
        return tf.convert_to_tensor(found)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"`output` returned a {type(found).__name__}: return a tensor, such as outputs[:, 0]."
        ) from error


def _layer_names(embeddings: Any) -> list[str]:
    names = () if embeddings is None else embeddings
    is_list = isinstance(names, Iterable) and not isinstance(names, (str, tf.Tensor, np.ndarray))
    if not is_list or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"embeddings={embeddings!r}: use a list of names of layers, such as ['embeddings']."
        )
    return list(names)


_INPUT = "input "


def _input_name(index: int) -> str:
    return f"{_INPUT}{index}"


@contextlib.contextmanager
def _intercepted(layers: Mapping[str, Any], enter: Change) -> Iterator[None]:
    """Pass the outputs of layers through a function during a block."""
    numbers = {name: itertools.count() for name in layers}

    def around(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def intercepted(*args: Any, **kwargs: Any) -> Any:
            outputs = tf.convert_to_tensor(call(*args, **kwargs))
            number = next(numbers[name])
            return enter(f"{name}_{number}" if number else name, outputs)

        return intercepted

    with replaced_calls((layer, around(name, layer.call)) for name, layer in layers.items()):
        yield


def check_floating(output: tf.Tensor) -> None:
    """Raise ValueError for an output that has no gradient, such as a class."""
    if not output.dtype.is_floating:
        raise ValueError(
            f"the output has dtype {output.dtype.name} and therefore no gradient: return numbers "
            "from before the argmax or the cast."
        )


def _one_per_row(outputs: Tensors, *, given: bool) -> tf.Tensor:
    if not isinstance(outputs, tf.Tensor):
        raise ValueError("the model has several outputs: say which by `output`, a function.")
    check_floating(outputs)
    if outputs.shape.rank == 2 and outputs.shape[-1] == 1:
        return outputs[:, 0]
    if outputs.shape.rank == 1:
        return outputs
    if not given:
        raise ValueError(
            f"the model's output has shape {outputs.shape}: say which number per row by `output`, "
            "such as lambda outputs: outputs[:, 0]."
        )
    wrong = (
        "one number for all rows: the gradient would depend on chunk_size"
        if outputs.shape.rank == 0
        else f"shape {outputs.shape}: the gradients of a row's numbers would be added up"
    )
    raise ValueError(
        f"`output` returned {wrong}; return one number per row, [rows], such as outputs[:, 0]."
    )
