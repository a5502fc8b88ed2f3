"""Compute gradients of outputs with respect to inputs, a chunk of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer_module.checks.tf_errors import translate_tf_errors
from trainer_module.checks.warn_once import warn_once
from trainer_module.common.positive_int import check_positive_int
from trainer_module.common.tensors import Tensors
from trainer_module.gradients.arguments import checked_features, to_tensors
from trainer_module.gradients.chunks import (
    ChunkSize,
    map_chunks,
    resolve_chunk_size,
    row_specs,
)
from trainer_module.gradients.model_inputs import Differentiator, InputGradients, differentiator
from trainer_module.window.micro_batch import upcast_to_float32
from trainer_module.window.trace_bytes import bytes_per_row

Output = Callable[[Any], tf.Tensor]
# Share of the output's largest change that the attributions may miss before there is a warning.
_GAP = 0.01
# The nodes of a quadrature are the eigenvalues of a matrix of this size, here of 128 MiB.
_MOST_STEPS = 4096


@translate_tf_errors()
def input_gradients(
    model: keras.Model,
    features: Tensors,
    *,
    chunk_size: ChunkSize = "auto",
    output: Output | None = None,
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
            `output` does not return one number per row, a layer does not exist, or there is neither
            a layer nor an input of floats.
    """
    features = checked_features(model, features)
    what = differentiator(model, features, output, embeddings)

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
    output: Output | None = None,
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
    what = differentiator(model, features, output, embeddings)
    has_baseline = baseline is not None
    start = features
    if has_baseline:
        start = _baseline_rows(features, to_tensors(baseline, "baseline"))
    nodes, weights = np.polynomial.legendre.leggauss(steps)

    def of_chunk(part: Any) -> dict[str, tf.Tensor]:
        rows, base = part
        end = what.at(rows)
        if has_baseline:
            first = {name: upcast_to_float32(t) for name, t in what.at(base).tensors.items()}
        else:
            first = {name: tf.zeros_like(upcast_to_float32(t)) for name, t in end.tensors.items()}
        moved = {name: upcast_to_float32(t) - first[name] for name, t in end.tensors.items()}
        names = list(moved)

        def at(share: Any) -> Any:
            return what.at(
                rows,
                lambda name, tensor: tf.cast(
                    first[name] + tf.cast(share, first[name].dtype) * moved[name], tensor.dtype
                ),
            )

        def body(index: Any, sums: list[tf.Tensor]) -> Any:
            gradients = at(tf.gather(tf.constant((nodes + 1) / 2), index)).gradients
            weight = tf.gather(tf.constant(weights / 2), index)
            return index + 1, [
                total + tf.cast(weight, total.dtype) * tf.cast(gradients[name], total.dtype)
                for name, total in zip(names, sums, strict=True)
            ]

        zeros = [tf.zeros_like(moved[name]) for name in names]
        _, sums = tf.while_loop(
            lambda index, _: index < steps, body, (tf.constant(0), zeros), parallel_iterations=1
        )
        found = {name: total * moved[name] for name, total in zip(names, sums, strict=True)}
        change = end.value - at(0.0).value
        gap = change
        for tensor in found.values():
            flat = tf.reshape(tensor, [tf.shape(tensor)[0], -1])
            gap -= tf.cast(tf.reduce_sum(flat, 1), gap.dtype)
        return {**found, "change": change, "gap": gap}

    found = _map_rows(of_chunk, what, features, (features, start), chunk_size)
    change, gap = found.pop("change"), found.pop("gap")
    if tf.executing_eagerly() and change.shape[0]:
        most = float(tf.reduce_max(tf.abs(gap)))
        wanted = float(tf.reduce_max(tf.abs(change)))
        if most > _GAP * wanted:
            warn_once(
                f"integrated_gradients: with steps={steps}, a row's attributions miss {most:.2g} "
                f"of its change, where the largest change is {wanted:.2g}. Use more steps, such "
                f"as steps={min(4 * steps, _MOST_STEPS)}.",
                about=model,
                topic="integrated_gradients",
            )
    return what.pack(features, found)._replace(change=change, gap=gap)


def _map_rows(
    function: Callable[[Any], dict[str, tf.Tensor]],
    what: Differentiator,
    features: Any,
    data: Any,
    chunk_size: ChunkSize,
) -> dict[str, tf.Tensor]:
    """Return `function` of all rows, by name, a chunk at a time."""

    def once(features: Any) -> None:
        what.at(features)

    def row_bytes() -> float:
        traced = tf.function(once, autograph=False).get_concrete_function(row_specs(features))
        return 2 * bytes_per_row(traced.graph)

    size = resolve_chunk_size(chunk_size, row_bytes)
    chunk = tf.function(function, autograph=False, input_signature=[row_specs(data)])
    traced = chunk.get_concrete_function().structured_outputs
    names = list(traced)
    specs = [(traced[name].dtype, traced[name].shape[1:].as_list()) for name in names]

    def of_chunk(part: Any) -> list[tf.Tensor]:
        found = chunk(part)
        return [found[name] for name in names]

    return dict(zip(names, map_chunks(of_chunk, data, specs, chunk_size=size), strict=True))


def _baseline_rows(features: Any, baseline: Any) -> Any:
    """Return the baseline with a row for each row of the features."""
    try:
        tf.nest.assert_same_structure(features, baseline)
    except (ValueError, TypeError):
        raise ValueError(
            "baseline has another structure than the features: give "
            f"tensors of shapes {tf.nest.map_structure(lambda t: [1, *t.shape[1:]], features)}."
        ) from None

    def rows(tensor: tf.Tensor, base: tf.Tensor) -> tf.Tensor:
        if base.shape[1:] != tensor.shape[1:] or base.shape[0] not in (1, tensor.shape[0]):
            raise ValueError(
                f"baseline has shape {base.shape} where the features have {tensor.shape}: give one "
                "row, or as many as the features have."
            )
        from_int = base.dtype.is_integer and (tensor.dtype.is_integer or tensor.dtype.is_floating)
        from_float = base.dtype.is_floating and tensor.dtype.is_floating
        if base.dtype != tensor.dtype and not (from_int or from_float):
            raise ValueError(
                f"baseline has dtype {base.dtype.name} where the features have "
                f"{tensor.dtype.name}: give the type of the features."
            )
        return tf.broadcast_to(tf.cast(base, tensor.dtype), tf.shape(tensor))

    return tf.nest.map_structure(rows, features, baseline)
