"""Compute the gradient of each row separately, to find the rows with the largest influence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from trainer_module.checks.batch import check_batch
from trainer_module.checks.custom_steps import reject_custom_train_step, warn_compile_args_ignored
from trainer_module.common.tensors import LossLike, Tensors
from trainer_module.gradients.chunks import map_chunks
from trainer_module.losses.weighted_loss import as_loss_function
from trainer_module.window.micro_batch import micro_batch_gradients
from trainer_module.window.spec import Batch, StepInputs, WindowSpec
from trainer_module.window.trace_bytes import has_loops


def per_example_gradients(
    model: keras.Model,
    loss_fn: LossLike,
    features: Tensors,
    labels: Tensors,
    sample_weight: Tensors = None,
    *,
    chunk_size: int,
    reduce: Callable[[list[tf.Tensor]], Any] | None = None,
) -> list[tf.Tensor] | tf.Tensor:
    """Return w_i ∇l_i for each row i, with the gradients of `chunk_size` rows in memory at a time.

    With several outputs, the result is the sum of their gradients. The result for all rows is
    `rows` times the size of the model; use `reduce` to keep less per row. Regularisers are not
    included, because they do not belong to a row. Dropout is active as in training, with the same
    mask for all rows of a chunk.

    Example:
        norms = per_example_gradients(
            model, "mse", x, y, chunk_size=64, reduce=tf.linalg.global_norm
        )  # [rows]

    Args:
        model: A built Keras model.
        loss_fn: See `TrainStep`.
        features: Tensor or structure of tensors `[rows, ...]`.
        labels: Tensor or structure of tensors `[rows, ...]`.
        sample_weight: `[rows]` or None.
        chunk_size: Number of rows at a time.
        reduce: Function of one row's gradients (a list in the order of the model's trainable
            variables) that returns one tensor.

    Returns:
        `[rows, *variable.shape]` per trainable variable, zeros if the loss does not depend on it.
        With `reduce`, one tensor `[rows, ...]` of its results.

    Raises:
        ValueError: chunk_size is below 1, tensors differ in their number of rows, a layer updates
            state when called, or the model overrides `compute_loss`. A model that overrides
            `train_step` is accepted, because its `train_step` may call this function.
    """
    check_batch(features, labels, sample_weight)
    reject_custom_train_step(model, ("compute_loss",), by="per_example_gradients")
    warn_compile_args_ignored(model, loss_fn)
    spec = WindowSpec(model, as_loss_function(loss_fn))
    variables = model.trainable_variables
    data = tf.nest.map_structure(
        lambda t: None if t is None else tf.convert_to_tensor(t), (features, labels, sample_weight)
    )

    def of_row(row: Any) -> list[tf.Tensor]:
        one = tf.nest.map_structure(lambda t: None if t is None else t[tf.newaxis], row)
        inputs = StepInputs(random_position=(0,))
        sums = micro_batch_gradients(spec, Batch(*one), inputs, separate=False)
        gradients = [
            tf.zeros(v.shape, v.dtype) if g is None else tf.cast(tf.convert_to_tensor(g), v.dtype)
            for v, g in zip(variables, sums.gradients, strict=True)
        ]
        return gradients if reduce is None else [tf.convert_to_tensor(reduce(gradients))]

    places = tf.nest.map_structure(lambda t: t is not None, data)
    present = [t for t in tf.nest.flatten(data) if t is not None]

    def of_tensors(*tensors: tf.Tensor) -> list[tf.Tensor]:
        rest = iter(tensors)
        return of_row(tf.nest.map_structure(lambda place: next(rest) if place else None, places))

    traced = tf.function(of_tensors, autograph=False).get_concrete_function(
        *(tf.TensorSpec(t.shape[1:], t.dtype) for t in present)
    )
    specs = [tf.TensorSpec(t.shape, t.dtype) for t in traced.structured_outputs]
    loops = has_loops(traced.graph)

    def of_chunk(part: Any) -> list[tf.Tensor]:
        rows = [t for t in tf.nest.flatten(part) if t is not None]
        if loops:
            # The tensor lists of a recurrent layer's loop cannot be vectorised, so run row by row,
            # with some rows in parallel.
            return tf.map_fn(lambda row: of_tensors(*row), rows, fn_output_signature=specs)
        return tf.vectorized_map(lambda row: of_tensors(*row), rows)

    shapes = [(spec.dtype, spec.shape.as_list()) for spec in specs]
    found = map_chunks(of_chunk, data, shapes, chunk_size=chunk_size)
    return found if reduce is None else found[0]
