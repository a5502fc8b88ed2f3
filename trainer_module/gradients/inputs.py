"""Compute gradients of outputs with respect to inputs, a chunk of rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from trainer_module.common.tensors import Tensors
from trainer_module.gradients.chunks import map_chunks


def input_gradients(
    model: keras.Model,
    features: Tensors,
    *,
    chunk_size: int,
    output: Callable[[Any], tf.Tensor] | None = None,
) -> Any:
    """Return ∂ output_i / ∂ input_i for each row i, in inference mode.

    Args:
        model: A built Keras model whose output for a row does not depend on other rows in
            inference mode.
        features: Tensor or structure of tensors `[rows, ...]`.
        chunk_size: Number of rows at a time; it bounds the memory.
        output: Function of the model's outputs that returns one number per row, `[rows]`, such as
            `lambda outputs: outputs[:, 2]`. Required for models with several outputs.

    Returns:
        The structure of `features`, with the gradient of each floating-point tensor, and None for
        all others, such as ids.

    Raises:
        ValueError: chunk_size is below 1, the model has several outputs and `output` is missing,
            `output` does not return one number per row, or no input is a floating-point tensor.
    """
    features = tf.nest.map_structure(tf.convert_to_tensor, features)
    floating = [tensor for tensor in tf.nest.flatten(features) if tensor.dtype.is_floating]
    if not floating:
        raise ValueError("no input is a tensor of floats: ids have no gradient.")

    def of_chunk(part: Any) -> list[tf.Tensor]:
        watched = [tensor for tensor in tf.nest.flatten(part) if tensor.dtype.is_floating]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(watched)
            outputs = model(part, training=False)
            # Rows do not depend on each other, so the gradient of the sum has each row's gradient.
            chosen = outputs if output is None else tf.convert_to_tensor(output(outputs))
            total = tf.reduce_sum(_one_per_row(chosen, given=output is not None))
        zero = tf.UnconnectedGradients.ZERO
        return tape.gradient(total, watched, unconnected_gradients=zero)

    specs = [(tensor.dtype, list(tensor.shape[1:])) for tensor in floating]
    found = iter(map_chunks(of_chunk, features, specs, chunk_size=chunk_size))
    return tf.nest.map_structure(lambda t: next(found) if t.dtype.is_floating else None, features)


def _one_per_row(outputs: Tensors, *, given: bool) -> tf.Tensor:
    if not isinstance(outputs, tf.Tensor):
        raise ValueError("the model has several outputs: say which by `output`, a function.")
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
