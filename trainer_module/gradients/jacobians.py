"""Compute the derivatives of all outputs with respect to all inputs, row by row."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from trainer_module.checks.tf_errors import translate_tf_errors
from trainer_module.common.tensors import Tensors
from trainer_module.gradients.arguments import checked_features
from trainer_module.gradients.chunks import (
    ChunkSize,
    map_chunks,
    resolve_chunk_size,
    row_specs,
)
from trainer_module.gradients.model_inputs import (
    check_floating,
    check_output,
    choose_output,
    floating_tensors,
)
from trainer_module.window.trace_bytes import bytes_per_row


@translate_tf_errors()
def jacobian(
    model: keras.Model,
    features: Tensors,
    *,
    chunk_size: ChunkSize = "auto",
    output: Callable[[Any], tf.Tensor] | None = None,
) -> Any:
    """Return ∂ output_i / ∂ input_i for each row i, in inference mode.

    One forward pass per chunk, and one backward pass per number of the output, so that the memory
    beside the result is that of `chunk_size` rows.

    Args:
        model: A built Keras model whose output for a row does not depend on other rows in
            inference mode.
        features: Tensor or structure of tensors `[rows, ...]`.
        chunk_size: Number of rows at a time, or "auto".
        output: Function of the model's outputs that returns one tensor `[rows, ...]`. Required for
            models with several outputs.

    Returns:
        The structure of `features`, with `[rows, *output, *input]` for each floating-point tensor,
        and None for all others, such as ids.

    Raises:
        ValueError: chunk_size is below 1, the model has several outputs and `output` is missing,
            the output or its shape is not known, or no input is a floating-point tensor.
    """
    features = checked_features(model, features)
    check_output(output)
    floating = floating_tensors(features)

    def outputs_of(part: Any) -> tf.Tensor:
        outputs = model(part, training=False)
        chosen = choose_output(outputs, output)
        if not isinstance(chosen, tf.Tensor):
            raise ValueError("the model has several outputs: choose one by `output`, a function.")
        check_floating(chosen)
        if chosen.shape.rank == 0 or not chosen.shape[1:].is_fully_defined():
            raise ValueError(
                f"the output has shape {chosen.shape}: return [rows, ...] with known sizes."
            )
        return chosen

    traced = tf.function(outputs_of, autograph=False).get_concrete_function(row_specs(features))
    shape = list(traced.structured_outputs.shape[1:])
    count = math.prod(shape)
    sizes = [math.prod(n or 1 for n in t.shape[1:]) * t.dtype.size for t in floating]
    size = resolve_chunk_size(
        chunk_size, lambda: 3 * bytes_per_row(traced.graph) + 2 * count * sum(sizes)
    )

    def of_chunk(part: Any) -> list[tf.Tensor]:
        watched = floating_tensors(part)
        with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
            tape.watch(watched)
            chosen = outputs_of(part)
            rows = tf.shape(watched[0])[0]
            message = "`output` must return one row for each row of the features."
            check = tf.debugging.assert_equal(tf.shape(chosen)[0], rows, message)
            with tf.control_dependencies([check]):
                flat = tf.reshape(chosen, [-1, count])

        def of_number(index: tf.Tensor) -> list[tf.Tensor]:
            # Rows do not depend on each other, so the gradient of the sum has each row's.
            seed = tf.one_hot(index, count, dtype=flat.dtype) * tf.ones_like(flat)
            zero = tf.UnconnectedGradients.ZERO
            return tape.gradient(flat, watched, seed, unconnected_gradients=zero)

        specs = [tf.TensorSpec([None, *t.shape[1:]], t.dtype) for t in watched]
        found = tf.map_fn(
            of_number, tf.range(count), fn_output_signature=specs, parallel_iterations=1
        )
        return [
            tf.reshape(
                tf.transpose(g, [1, 0, *range(2, len(t.shape) + 1)]),
                [tf.shape(t)[0], *shape, *t.shape[1:]],
            )
            for g, t in zip(found, watched, strict=True)
        ]

    specs = [(t.dtype, [*shape, *t.shape[1:]]) for t in floating]
    # In a graph, since the gradient of a loop needs one.
    chunk = tf.function(of_chunk, autograph=False, input_signature=[row_specs(features)])
    found = iter(map_chunks(chunk, features, specs, chunk_size=size))
    return tf.nest.map_structure(lambda t: next(found) if t.dtype.is_floating else None, features)
