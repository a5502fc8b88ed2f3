"""The gradient of every row by itself: which rows pull the weights, and how far."""

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
    """Returns w_i ∇l_i for each row i, holding `chunk_size` rows' gradients at a time.

    Of several outputs it is their sum. The result for all rows is `rows` times the size of the
    model; `reduce` keeps less of each row. Regularisers are not in it, since they belong to no row.
    Dropout is as in training, with the same mask for all rows of a chunk.

    Example:
        norms = per_example_gradients(
            model, "mse", x, y, chunk_size=64, reduce=tf.linalg.global_norm
        )  # [rows]

    Args:
        model: A built Keras model.
        loss_fn: As `TrainStep` takes it.
        features: Tensor or structure of tensors `[rows, ...]`.
        labels: Tensor or structure of tensors `[rows, ...]`.
        sample_weight: `[rows]` or None.
        chunk_size: Rows at a time.
        reduce: From one row's gradients (a list, as the model's trainable variables) to one tensor.

    Returns:
        `[rows, *variable.shape]` per trainable variable, zeros where the loss does not depend on
        it; with `reduce`, its results `[rows, ...]`.

    Raises:
        ValueError: chunk_size below 1, tensors that differ in rows, a layer that updates state when
            called, or a model with a `compute_loss` of its own. A `train_step` of its own may be
            what calls this function.
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
            # The lists of a recurrent layer's loop cannot be vectorised: row by row, some at once.
            return tf.map_fn(lambda row: of_tensors(*row), rows, fn_output_signature=specs)
        return tf.vectorized_map(lambda row: of_tensors(*row), rows)

    shapes = [(spec.dtype, spec.shape.as_list()) for spec in specs]
    found = map_chunks(of_chunk, data, shapes, chunk_size=chunk_size)
    return found if reduce is None else found[0]
