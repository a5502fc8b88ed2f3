"""Compute gradients of outputs with respect to inputs and to the outputs of layers that embed ids.

A layer may get its rows in another order, as after a sort, or on another axis. So where layers are
named, each row is a separate pass, which `tf.vectorized_map` runs for a chunk.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from shared_core.nearest import nearest
from trainer_module.checks.batch import translate_tf_errors
from trainer_module.checks.warn_once import warn_once
from trainer_module.common.layers import replaced_calls
from trainer_module.common.tensors import Tensors
from trainer_module.common.user_values import check_positive_int
from trainer_module.gradients.arguments import check_function, checked_features, to_tensors
from trainer_module.gradients.row_gradients import (
    ChunkSize,
    chunk_function,
    count_rows,
    map_chunks,
    resolve_chunk_size,
    row_specs,
)
from trainer_module.window.micro_batch import upcast_to_float32
from trainer_module.window.trace import bytes_per_row

_Output = Callable[[Any], tf.Tensor]
# Share of the output's largest change that the attributions may miss before there is a warning.
_GAP = 0.01
# The nodes of a quadrature are the eigenvalues of a matrix of this size, here of 128 MiB.
_MOST_STEPS = 4096
_INPUT = "input "


class InputGradients(NamedTuple):
    """One number for each number that goes into the model.

    Attributes:
        inputs: Structure of the features, a tensor `[rows, ...]` for each floating-point one, and
            None for all others.
        embeddings: Layer -> `[rows, ...]`, of the shape of the layer's output for one row. Further
            calls of the same layer have the names `layer_1`, `layer_2`, ...
        change: f(x) - f(baseline), `[rows]`; integrated gradients only.
        gap: `change` minus the sum of a row's attributions, `[rows]`: 0 if the integral is exact;
            integrated gradients only.
    """

    inputs: Any
    embeddings: dict[str, tf.Tensor]
    change: tf.Tensor | None = None
    gap: tf.Tensor | None = None


@translate_tf_errors()
def input_gradients(
    model: keras.Model,
    features: Tensors,
    *,
    chunk_size: ChunkSize = "auto",
    output: _Output | None = None,
    embeddings: Sequence[str] | None = None,
) -> Any:
    """Return ∂ output_i / ∂ input_i for each row i, in inference mode.

    Args:
        model: A built Keras model whose output for a row does not depend on other rows in
            inference mode.
        features: Tensor or structure of tensors `[rows, ...]`.
        chunk_size: Number of rows at a time, or "auto"; it bounds the memory.
        output: Function of the model's outputs that returns one number per row, `[rows]`, such as
            `lambda outputs: outputs[:, 2]`. Required for models with several outputs.
        embeddings: Names of layers that embed ids; the gradients of their outputs are returned too.

    Returns:
        The structure of `features`, with the gradient of each floating-point tensor, and None for
        all others, such as ids. If `embeddings` is given, even empty, an `InputGradients`.

    Raises:
        ValueError: chunk_size is below 1, the model has several outputs and `output` is missing,
            `output` does not return one number per row, a layer does not exist or is called in a
            branch, loop or function, or there is neither a layer nor an input of floats.
    """
    features = checked_features(model, features)
    what = _differentiator(model, features, output, embeddings)

    def of_chunk(part: Any) -> dict[str, tf.Tensor]:
        return what.at(part).gradients

    found = what.pack(features, _map_rows(of_chunk, what, features, features, chunk_size))
    return found.inputs if embeddings is None else found


@translate_tf_errors()
def integrated_gradients(
    model: keras.Model,
    features: Tensors,
    *,
    chunk_size: ChunkSize = "auto",
    baseline: Tensors = None,
    steps: int = 50,
    output: _Output | None = None,
    embeddings: Sequence[str] | None = None,
) -> InputGradients:
    """Return the attributions (x - x') ∫ ∂ output(x' + α (x - x')) / ∂x dα of Sundararajan 2017.

    The integral from the baseline x' to x is a Gauss-Legendre quadrature. Where it is exact, a
    row's attributions add up to f(x) - f(x'); `gap` is the difference. Outside of a `tf.function`,
    a warning names a gap above 1 % of the largest change.

    Args:
        model: See `input_gradients`.
        features: Tensor or structure of tensors `[rows, ...]`.
        chunk_size: Number of rows at a time, or "auto"; it bounds the memory.
        baseline: x', structure of `features` with 1 row, or a row for each; None: zeros, for the
            outputs of `embeddings` too. Ids of a baseline are embedded; ids without an entry in
            `embeddings` stay those of x.
        steps: Number of points of the quadrature, at most 4,096.
        output: See `input_gradients`.
        embeddings: Names of layers that embed ids; their outputs get attributions too.

    Raises:
        ValueError: steps is not in [1, 4096], or the baseline does not fit. See also
            `input_gradients`.
    """
    features = checked_features(model, features)
    steps = check_positive_int("steps", steps)
    if steps > _MOST_STEPS:
        raise ValueError(f"steps={steps}: use at most {_MOST_STEPS:,}.")
    what = _differentiator(model, features, output, embeddings)
    data = [features]
    if baseline is not None:
        data.append(_baseline_rows(features, to_tensors(baseline, "baseline")))
    shares, weights = quadrature(steps)

    def of_chunk(part: Any) -> dict[str, tf.Tensor]:
        rows, *base = part
        first = what.at(*base).tensors if base else None
        found, value, at_baseline = integrate(what, rows, first, shares, weights)
        gap = change = value - at_baseline
        for tensor in found.values():
            gap -= tf.cast(tf.reduce_sum(tensor, range(1, tensor.shape.rank)), gap.dtype)
        return {**found, "change": change, "gap": gap}

    found = _map_rows(of_chunk, what, features, data, chunk_size)
    change, gap = found.pop("change"), found.pop("gap")
    if tf.executing_eagerly() and change.shape[0]:
        most, wanted = (float(tf.reduce_max(tf.abs(each))) for each in (gap, change))
        if most > _GAP * wanted:
            warn_once(
                f"integrated_gradients: with steps={steps}, a row's attributions miss {most:.2g} "
                f"of its change, where the largest change is {wanted:.2g}. Use more steps, such "
                f"as steps={min(4 * steps, _MOST_STEPS)}.",
                about=model,
                topic="integrated_gradients",
            )
    return what.pack(features, found)._replace(change=change, gap=gap)


def quadrature(steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the points of a Gauss-Legendre quadrature over [0, 1], after 0, and their weights."""
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    return np.append(0, (nodes + 1) / 2), np.append(0, weights / 2)


class _Point(NamedTuple):
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
    output: _Output | None
    layers: Mapping[str, keras.layers.Layer]

    def at(
        self,
        features: Any,
        changed: Mapping[str, tf.Tensor] | None = None,
        classes: tf.Tensor | None = None,
    ) -> _Point:
        """Return output and gradients in inference mode.

        `changed` holds what the model gets instead of each floating-point input, named by its
        number, and of each output of `layers`; the gradients are those there. `classes`, `[rows]`,
        is the number of the output to differentiate; None: the output is one number per row.
        """
        data = features, changed, classes
        if not self.layers:
            # Rows do not depend on each other, so the gradient of the sum has each row's.
            return self.of_rows(*data)
        names: list[str] = []

        def of_row(row: Any, _: tf.Tensor) -> list[tf.Tensor]:
            value, tensors, gradients = self.of_rows(*row)
            names[:] = tensors
            both = [*tensors.values(), *gradients.values()]
            return [tf.squeeze(value, 0), *map(_of_one_row, both)]

        of_chunk, specs = chunk_function(of_row, data)
        value, *found = map(
            lambda tensor, spec: tf.ensure_shape(tensor, [None, *spec.shape]),
            of_chunk((data, tf.range(count_rows(data)))),
            specs,
        )
        tensors = dict(zip(names, found[: len(names)], strict=True))
        gradients = dict(zip(names, found[len(names) :], strict=True))
        return _Point(value, tensors, gradients)

    def of_rows(
        self, features: Any, changed: Mapping[str, tf.Tensor] | None, classes: tf.Tensor | None
    ) -> _Point:
        """Return what `at` returns, by one pass; with `layers`, of one row only."""
        tensors: dict[str, tf.Tensor] = {}
        with tf.GradientTape(watch_accessed_variables=False) as tape:

            def enter(name: str, tensor: tf.Tensor) -> tf.Tensor:
                tensor = tf.identity(tensor)
                if changed is not None:
                    given = changed[name]
                    if tensor.shape[0] is None and self.layers:
                        given = given[: tf.shape(tensor)[0]]  # none, if the row has no place here
                    tensor = tf.reshape(given, tf.shape(tensor))
                tape.watch(tensor)
                tensors[name] = tensor
                return tensor

            flat = [
                enter(f"{_INPUT}{index}", tensor) if tensor.dtype.is_floating else tensor
                for index, tensor in enumerate(tf.nest.flatten(features))
            ]
            with _intercepted(self.layers, enter):
                outputs = self.model(tf.nest.pack_sequence_as(features, flat), training=False)
            rows = tf.nest.flatten(features)[0].shape[0]
            value = self._one_per_row(outputs, classes, rows)
            total = tf.reduce_sum(value)
        zero = tf.UnconnectedGradients.ZERO
        return _Point(value, tensors, tape.gradient(total, tensors, unconnected_gradients=zero))

    def _one_per_row(self, outputs: Any, classes: tf.Tensor | None, rows: int | None) -> tf.Tensor:
        if self.output is not None:
            made = self.output(outputs)
            try:
                outputs = tf.convert_to_tensor(made)
            except (TypeError, ValueError, OverflowError):
                raise ValueError(
                    f"`output` returned a {type(made).__name__}: return a tensor, such as "
                    "outputs[:, 0]."
                ) from None
        if not isinstance(outputs, tf.Tensor):
            raise ValueError("the model has several outputs: say which by `output`, a function.")
        if not outputs.dtype.is_floating:
            raise ValueError(
                f"the output has dtype {outputs.dtype.name} and therefore no gradient: return "
                "numbers from before the argmax or the cast."
            )
        if classes is not None:
            outputs = tf.gather(outputs, classes, batch_dims=1)
        elif outputs.shape.rank == 2 and outputs.shape[-1] == 1:
            outputs = outputs[:, 0]
        if outputs.shape.rank != 1 or outputs.shape[0] not in (None, rows):
            raise ValueError(
                f"the output has shape {outputs.shape}: return one number per row, [rows], by "
                "`output`, such as lambda outputs: outputs[:, 0]."
            )
        return upcast_to_float32(outputs)

    def pack(self, features: Any, found: Mapping[str, tf.Tensor]) -> InputGradients:
        """Return the tensors by name in the structure of the features."""
        flat = [found.get(f"{_INPUT}{i}") for i in range(len(tf.nest.flatten(features)))]
        layers = {name: t for name, t in found.items() if not name.startswith(_INPUT)}
        return InputGradients(tf.nest.pack_sequence_as(features, flat), layers)


def integrate(
    what: Differentiator,
    rows: Any,
    first: Mapping[str, tf.Tensor] | None,
    shares: Any,
    weights: Any,
    classes: tf.Tensor | None = None,
) -> tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]:
    """Return the integrated gradients by name, and the outputs at the rows and at the baseline.

    `first` is what the model gets at the baseline, by name (None: zeros); `shares` and `weights`
    are those of a `quadrature`.
    """
    end = what.at(rows, None, classes)
    last = {name: upcast_to_float32(tensor) for name, tensor in end.tensors.items()}
    if first is None:
        first = {name: tf.zeros_like(tensor) for name, tensor in last.items()}
    way = {name: last[name] - tf.cast(first[name], last[name].dtype) for name in last}

    def body(index: Any, start: tf.Tensor, sums: dict[str, tf.Tensor]) -> Any:
        left = 1 - tf.gather(shares, index)
        changed = {
            name: tf.cast(last[name] - tf.cast(left, way[name].dtype) * way[name], tensor.dtype)
            for name, tensor in end.tensors.items()
        }
        point = what.at(rows, changed, classes)
        weight = tf.gather(weights, index)
        added = {
            name: total
            + tf.math.multiply_no_nan(
                tf.cast(point.gradients[name], total.dtype), tf.cast(weight, total.dtype)
            )
            for name, total in sums.items()
        }
        return index + 1, tf.where(index == 0, point.value, start), added

    zeros = {name: tf.zeros_like(tensor) for name, tensor in last.items()}
    _, start, sums = tf.while_loop(
        lambda index, *_: index < tf.size(shares),
        body,
        (tf.constant(0), tf.zeros_like(end.value), zeros),
        parallel_iterations=1,
    )
    return {name: total * way[name] for name, total in sums.items()}, end.value, start


def _of_one_row(tensor: tf.Tensor) -> tf.Tensor:
    """Return a tensor of a pass of one row without the axis of rows, if that is the first."""
    if tensor.shape[0] is not None:
        return tf.squeeze(tensor, 0) if tensor.shape[0] == 1 else tensor
    # A row that is not routed to a layer has no place there, and no gradient.
    message = "embeddings: the shape of a layer's output depends on values, so it has no rows."
    with tf.control_dependencies([tf.debugging.assert_less_equal(tf.shape(tensor)[0], 1, message)]):
        return tf.reduce_sum(tensor, 0)


def _map_rows(
    function: Callable[[Any], dict[str, tf.Tensor]],
    what: Differentiator,
    features: Any,
    data: Any,
    chunk_size: ChunkSize,
) -> dict[str, tf.Tensor]:
    """Return `function` of all rows, by name, a chunk at a time."""

    def row_bytes() -> float:
        once = tf.function(lambda part: what.of_rows(part, None, None), autograph=False)
        return 2 * bytes_per_row(once.get_concrete_function(row_specs(features)).graph)

    size = resolve_chunk_size(chunk_size, row_bytes)
    chunk = tf.function(function, autograph=False, input_signature=[row_specs(data)])
    traced = chunk.get_concrete_function().structured_outputs
    names = list(traced)
    specs = [(traced[name].dtype, traced[name].shape[1:].as_list()) for name in names]

    def of_chunk(part: Any) -> list[tf.Tensor]:
        found = chunk(part)
        return [found[name] for name in names]

    return dict(zip(names, map_chunks(of_chunk, data, specs, chunk_size=size), strict=True))


def _differentiator(
    model: Any, features: Any, output: _Output | None, embeddings: Sequence[str] | None
) -> Differentiator:
    check_function("output", output, example="lambda outputs: outputs[:, 0]")
    names = () if embeddings is None else embeddings
    is_list = isinstance(names, Iterable) and not isinstance(names, (str, tf.Tensor, np.ndarray))
    if not is_list or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"embeddings={embeddings!r}: use a list of names of layers, such as ['embeddings']."
        )
    known = {layer.name: layer for layer in model._flatten_layers(include_self=False)}
    for name in names:
        if name not in known:
            raise ValueError(
                f"embeddings={list(names)}: the model has no layer {name!r}, {nearest(name, known)}"
            )
    types = [tensor.dtype for tensor in tf.nest.flatten(features)]
    if not names and not any(dtype.is_floating for dtype in types):
        raise ValueError(
            f"no input is a tensor of floats ({', '.join(dtype.name for dtype in types)}): ids "
            "have no gradient. For the gradients of their embeddings, use "
            "embeddings=[names of layers]."
        )
    return Differentiator(model, output, {name: known[name] for name in names})


@contextlib.contextmanager
def _intercepted(
    layers: Mapping[str, Any], enter: Callable[[str, tf.Tensor], tf.Tensor]
) -> Iterator[None]:
    """Pass the outputs of layers through a function during a block."""
    graph = tf.compat.v1.get_default_graph()
    numbers = {name: itertools.count() for name in layers}

    def around(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def intercepted(*args: Any, **kwargs: Any) -> Any:
            if tf.compat.v1.get_default_graph() is not graph:
                raise ValueError(
                    f"embeddings: layer {name!r} is called in a branch, loop or tf.function, where "
                    "its outputs cannot be replaced: call it outside."
                )
            outputs = tf.convert_to_tensor(call(*args, **kwargs))
            number = next(numbers[name])
            return enter(f"{name}_{number}" if number else name, outputs)

        return intercepted

    with replaced_calls((layer, around(name, layer.call)) for name, layer in layers.items()):
        yield


def _baseline_rows(features: Any, baseline: Any) -> Any:
    """Return the baseline with a row for each row of the features."""
    shapes = tf.nest.map_structure(lambda t: [1, *t.shape[1:]], features)
    try:
        tf.nest.assert_same_structure(features, baseline)
    except (ValueError, TypeError):
        raise ValueError(
            f"baseline has another structure than the features: give tensors of shapes {shapes}."
        ) from None

    def rows(tensor: tf.Tensor, base: tf.Tensor) -> tf.Tensor:
        fits = base.shape[1:] == tensor.shape[1:] and base.shape[0] in (1, tensor.shape[0])
        is_number = tensor.dtype.is_floating or tensor.dtype.is_integer
        casts = base.dtype.is_integer or (base.dtype.is_floating and tensor.dtype.is_floating)
        if not fits or (base.dtype != tensor.dtype and not (is_number and casts)):
            raise ValueError(
                f"baseline has dtype {base.dtype.name} and shape {base.shape} where the features "
                f"have {tensor.dtype.name} and {tensor.shape}: give their type and one row, or as "
                "many as they have."
            )
        return tf.broadcast_to(tf.cast(base, tensor.dtype), tf.shape(tensor))

    return tf.nest.map_structure(rows, features, baseline)
