"""How much each input moves the output, for more rows than fit into memory at once."""

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
    """Returns ∂ output_i / ∂ input_i for each row i, in inference mode.

    Args:
        model: A built Keras model whose rows do not depend on each other, as in inference.
        features: Tensor or structure of tensors `[rows, ...]`.
        chunk_size: Rows at a time: what bounds the memory.
        output: From the model's outputs to one number per row, `[rows]`, such as
            `lambda outputs: outputs[:, 2]`; needed for models with several outputs.

    Returns:
        The structure of `features`, with a gradient in place of each tensor of floats, and None in
        place of ids, which have none.

    Raises:
        ValueError: chunk_size below 1, several outputs and no `output`, an `output` that does not
            give one number per row, or no input of floats.
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
            # Rows do not depend on each other: the sum's gradient is each row's own.
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
