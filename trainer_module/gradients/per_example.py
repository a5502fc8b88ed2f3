"""The gradient of each row, its norm, and the sum of clipped gradients.

Reductions fold each of them, so that nothing of size rows times parameters exists.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from trainer_module.checks.batch import translate_tf_errors
from trainer_module.common.keras_arguments import naming_replacements
from trainer_module.common.tensors import LossLike, Tensors
from trainer_module.devices.replicas import replica_index
from trainer_module.gradients.arguments import check_function, checked_batch
from trainer_module.gradients.layer_gradients import (
    ChunkGradients,
    chunk_gradients,
    layers_by_norm_identity,
    variables_of,
)
from trainer_module.gradients.row_gradients import (
    ChunkSize,
    chunk_function,
    map_chunks,
    number_rows,
    resolve_chunk_size,
    row_bytes,
    sum_chunks,
    sum_tensors_over_replicas,
)
from trainer_module.losses.weighted_loss import as_loss_function
from trainer_module.window.gradient_sum import sum_dtype
from trainer_module.window.micro_batch import micro_batch_gradients, upcast_to_float32
from trainer_module.window.spec import Batch, StepInputs, WindowSpec


@naming_replacements()
@translate_tf_errors()
def per_example_gradients(
    model: keras.Model,
    loss_fn: LossLike,
    features: Tensors,
    labels: Tensors,
    sample_weight: Tensors = None,
    *,
    chunk_size: ChunkSize = "auto",
    reduce: Callable[[list[tf.Tensor]], Any] | None = None,
    over_rows: Literal["none", "sum", "mean"] = "none",
    random_position: Sequence[Any] = (),
) -> Any:
    """Return w_i ∇l_i for each row i, with the gradients of `chunk_size` rows in memory at a time.

    With several outputs, the result is the sum of their gradients. The result for all rows is
    `rows` times the size of the model; use `reduce` to keep less per row. Regularisers are not
    included, because they do not belong to a row.

    Layers run in training mode. Each row has separate random numbers, such as dropout masks. They
    are a function of the model's seeds, `random_position`, the replica and the row's number, and
    do not depend on `chunk_size`. Rows of a chunk run in parallel with `tf.vectorized_map`, except
    in models with loops of unknown length, which run row by row.

    Example:
        norms = per_example_gradients(model, "mse", x, y, reduce=tf.linalg.global_norm)

    Args:
        model: A built Keras model.
        loss_fn: See `TrainStep`.
        features: Tensor or structure of tensors `[rows, ...]`.
        labels: Tensor or structure of tensors `[rows, ...]`.
        sample_weight: `[rows]` or None.
        chunk_size: Number of rows at a time, or "auto": as many as hold 128 MiB, on a GPU 256 MiB.
        reduce: Function of one row's gradients g_i = w_i ∇l_i (a list in the order of the model's
            trainable variables) that returns a tensor, or a list of tensors.
        over_rows: "none" returns a result for each row. "sum" and "mean" return one for all rows,
            of all replicas if called inside `strategy.run`.
        random_position: Integers that identify the batch, such as the step number. Other integers
            give other dropout masks.

    Returns:
        `[rows, *variable.shape]` per trainable variable, zeros if the loss does not depend on it.
        With `reduce`, its results, `[rows, ...]`; without the axis of rows for "sum" and "mean".

    Raises:
        ValueError: chunk_size is below 1, tensors differ in their number of rows or do not fit the
            model, a layer updates state when called, such as BatchNormalization that is not frozen,
            or the model overrides `compute_loss`. A model that overrides `train_step` is accepted,
            because its `train_step` may call this function.
    """
    check_function("reduce", reduce, example="tf.linalg.global_norm")
    if not isinstance(over_rows, str) or over_rows not in ("none", "sum", "mean"):
        raise ValueError(f'over_rows={over_rows!r}: use "none", "sum" or "mean".')
    batch = checked_batch(
        model,
        loss_fn,
        features,
        labels,
        sample_weight,
        by="per_example_gradients",
        random_position=random_position,
    )
    spec = WindowSpec(model, as_loss_function(loss_fn))
    size = resolve_chunk_size(chunk_size, lambda: row_bytes(spec, batch))
    replica, is_list = replica_index(), [True]  # whether the caller gets a list

    def of_row(row: Any, number: tf.Tensor) -> list[tf.Tensor]:
        inputs = StepInputs(random_position=(*random_position, replica, number))
        sums = micro_batch_gradients(spec, Batch(*row), inputs, separate=False)
        gradients = [
            tf.zeros(v.shape, v.dtype) if g is None else tf.cast(tf.convert_to_tensor(g), v.dtype)
            for v, g in zip(model.trainable_variables, sums.gradients, strict=True)
        ]
        reduced = gradients if reduce is None else reduce(gradients)
        is_list[0] = isinstance(reduced, (list, tuple))
        return [tf.convert_to_tensor(t) for t in (reduced if is_list[0] else [reduced])]

    of_chunk, row_specs = chunk_function(of_row, batch)
    specs = [(spec.dtype, spec.shape.as_list()) for spec in row_specs]
    data = number_rows(batch)
    if over_rows == "none":
        results = map_chunks(of_chunk, data, specs, chunk_size=size)
        return results if is_list[0] else results[0]

    def sums_of_chunk(part: Any) -> list[tf.Tensor]:
        return [tf.reduce_sum(upcast_to_float32(tensor), 0) for tensor in of_chunk(part)]

    # In bfloat16, 256 + 1 is 256.
    specs = [(tf.float32 if d in (tf.bfloat16, tf.float16) else d, s) for d, s in specs]
    sums = sum_chunks(sums_of_chunk, data, specs, chunk_size=size)
    # A replica's int32 tensors are on the host, where they cannot be reduced with the others.
    count = tf.cast(tf.shape(data[1])[0], tf.float64)
    *sums, count = sum_tensors_over_replicas([*sums, count])
    if over_rows == "mean":
        sums = [total / tf.cast(tf.maximum(count, 1), total.dtype) for total in sums]
    return sums if is_list[0] else sums[0]


@naming_replacements()
@translate_tf_errors()
def gradient_norms(
    model: keras.Model,
    loss_fn: LossLike,
    features: Tensors,
    labels: Tensors,
    sample_weight: Tensors = None,
    *,
    chunk_size: ChunkSize = "auto",
    random_position: Sequence[Any] = (),
) -> tf.Tensor:
    """Return ‖w_i ∇l_i‖ for each row i.

    The gradients of Dense layers and embeddings are not materialised: their norms are computed from
    the inputs and the gradients of the outputs (Goodfellow 2015, arXiv:1510.01799). Those of all
    other layers, and of layers that share a variable, are materialised for a chunk of rows. As in
    `per_example_gradients`, a row's loss must not depend on other rows.

    The arguments are those of `per_example_gradients`.

    Returns:
        `[rows]`, float32, or float64 for a float64 model.

    Raises:
        ValueError: See `per_example_gradients`.
    """
    data = features, labels, sample_weight
    plan = _plan("gradient_norms", model, loss_fn, data, chunk_size, random_position)

    def of_chunk(part: Any) -> list[tf.Tensor]:
        return [plan.of_chunk(part).norms(tf.shape(part[1])[0], plan.dtype)]

    specs = [(plan.dtype, [])]
    return map_chunks(of_chunk, number_rows(plan.batch), specs, chunk_size=plan.chunk_size)[0]


@naming_replacements()
@translate_tf_errors()
def clipped_gradient_sum(
    model: keras.Model,
    loss_fn: LossLike,
    features: Tensors,
    labels: Tensors,
    sample_weight: Tensors = None,
    *,
    clip_norm: float,
    chunk_size: ChunkSize = "auto",
    random_position: Sequence[Any] = (),
) -> list[tf.Tensor]:
    """Return Σ_i g_i · min(1, clip_norm / ‖g_i‖) with g_i = w_i ∇l_i.

    It bounds the influence of each row. It adds no noise, so that it is not differential privacy.
    See `gradient_norms` for what is not materialised.

    `clip_norm` is the largest norm of one row's gradient, above 0. The other arguments are those of
    `per_example_gradients`.

    Returns:
        One tensor per trainable variable, float32, or float64 for a float64 model. Inside
        `strategy.run`, the sums are over the rows of all replicas.

    Raises:
        ValueError: clip_norm is not a finite number above 0. See also `per_example_gradients`.
    """
    is_number = isinstance(clip_norm, numbers.Real) and not isinstance(clip_norm, bool)
    if not is_number or not 0 < clip_norm < math.inf:
        raise ValueError(f"clip_norm={clip_norm!r}: use a finite number above 0, such as 1.0.")
    data = features, labels, sample_weight
    plan = _plan("clipped_gradient_sum", model, loss_fn, data, chunk_size, random_position)
    variables = model.trainable_variables

    def of_chunk(part: Any) -> list[tf.Tensor]:
        gradients = plan.of_chunk(part)
        norms = gradients.norms(tf.shape(part[1])[0], plan.dtype)
        sums = gradients.weighted_sums(_clip_factors(norms, clip_norm))
        return [sums.get(id(v), tf.zeros(v.shape, plan.dtype)) for v in variables]

    specs = [(plan.dtype, list(v.shape)) for v in variables]
    sums = sum_chunks(of_chunk, number_rows(plan.batch), specs, chunk_size=plan.chunk_size)
    return sum_tensors_over_replicas(sums)


class _Plan(NamedTuple):
    """How the gradients of a chunk are computed: `of_chunk(part)` returns them."""

    batch: Any
    of_chunk: Callable[[Any], ChunkGradients]
    chunk_size: int
    dtype: tf.DType


def _plan(
    by: str, model: keras.Model, loss_fn: LossLike, data: Any, chunk_size: ChunkSize, position: Any
) -> _Plan:
    batch = checked_batch(model, loss_fn, *data, by=by, random_position=position)
    spec = WindowSpec(model, as_loss_function(loss_fn))
    size = resolve_chunk_size(chunk_size, lambda: row_bytes(spec, batch))
    layers = layers_by_norm_identity(spec, batch)
    covered = {id(v) for layer in layers for v in variables_of(layer)}
    others = [v for v in model.trainable_variables if id(v) not in covered]
    of_rows = chunk_gradients(spec, batch, layers, others)
    inputs = StepInputs(random_position=(*position, replica_index()))
    return _Plan(batch, lambda part: of_rows(part, inputs)[1], size, sum_dtype(model))


def _clip_factors(norms: tf.Tensor, clip_norm: float) -> tf.Tensor:
    """Return min(1, clip_norm / norm) of each norm, which is 1 where the norm is 0."""
    range_of = np.finfo(norms.dtype.as_numpy_dtype)
    # Out of the range of float32, it would be 0 or infinite, and the quotient NaN.
    limit = tf.constant(min(max(clip_norm, float(range_of.tiny)), float(range_of.max)), norms.dtype)
    return limit / tf.maximum(norms, limit)
