"""Compute the norm of each row's gradient, and the sum of the clipped gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from trainer_module.checks.tf_errors import translate_tf_errors
from trainer_module.common.keras_arguments import naming_replacements
from trainer_module.common.tensors import LossLike, Tensors
from trainer_module.gradients.arguments import check_positive_number, checked_batch
from trainer_module.gradients.chunk_gradients import (
    ChunkGradients,
    chunk_gradients,
    layers_by_norm_identity,
)
from trainer_module.gradients.chunks import (
    ChunkSize,
    check_chunk_size,
    map_chunks,
    resolve_chunk_size,
    sum_chunks,
    sum_tensors_over_replicas,
)
from trainer_module.gradients.layer_gradients import variables_of
from trainer_module.gradients.reductions import clip_factors
from trainer_module.gradients.row_gradients import number_rows, replica_index, row_bytes
from trainer_module.losses.weighted_loss import as_loss_function
from trainer_module.window.gradient_sum import sum_dtype
from trainer_module.window.spec import StepInputs, WindowSpec


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

    Args:
        model: A built Keras model.
        loss_fn: See `TrainStep`.
        features: Tensor or structure of tensors `[rows, ...]`.
        labels: Tensor or structure of tensors `[rows, ...]`.
        sample_weight: `[rows]` or None.
        chunk_size: See `per_example_gradients`.
        random_position: See `per_example_gradients`.

    Returns:
        `[rows]`, float32, or float64 for a float64 model.

    Raises:
        ValueError: See `per_example_gradients`.
    """
    batch = checked_batch(
        model,
        loss_fn,
        features,
        labels,
        sample_weight,
        by="gradient_norms",
        random_position=random_position,
    )
    plan = _plan(model, loss_fn, batch, chunk_size, random_position)

    def of_chunk(part: Any) -> list[tf.Tensor]:
        return [plan.of_chunk(part).norms(tf.shape(part[1])[0], plan.dtype)]

    specs = [(plan.dtype, [])]
    return map_chunks(of_chunk, number_rows(batch), specs, chunk_size=plan.chunk_size)[0]


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

    Args:
        model: A built Keras model.
        loss_fn: See `TrainStep`.
        features: Tensor or structure of tensors `[rows, ...]`.
        labels: Tensor or structure of tensors `[rows, ...]`.
        sample_weight: `[rows]` or None.
        clip_norm: Largest norm of one row's gradient, above 0.
        chunk_size: See `per_example_gradients`.
        random_position: See `per_example_gradients`.

    Returns:
        One tensor per trainable variable, float32, or float64 for a float64 model. Inside
        `strategy.run`, the sums are over the rows of all replicas.

    Raises:
        ValueError: clip_norm is not a finite number above 0. See also `per_example_gradients`.
    """
    check_positive_number("clip_norm", clip_norm, example="1.0")
    batch = checked_batch(
        model,
        loss_fn,
        features,
        labels,
        sample_weight,
        by="clipped_gradient_sum",
        random_position=random_position,
    )
    plan = _plan(model, loss_fn, batch, chunk_size, random_position)
    variables = model.trainable_variables

    def of_chunk(part: Any) -> list[tf.Tensor]:
        gradients = plan.of_chunk(part)
        norms = gradients.norms(tf.shape(part[1])[0], plan.dtype)
        sums = gradients.weighted_sums(clip_factors(norms, clip_norm))
        return [sums.get(id(v), tf.zeros(v.shape, plan.dtype)) for v in variables]

    specs = [(plan.dtype, list(v.shape)) for v in variables]
    sums = sum_chunks(of_chunk, number_rows(batch), specs, chunk_size=plan.chunk_size)
    return sum_tensors_over_replicas(sums)


class _Plan(NamedTuple):
    """How the gradients of a chunk are computed: `of_chunk(part)` returns them."""

    of_chunk: Callable[[Any], ChunkGradients]
    chunk_size: int
    dtype: tf.DType


def _plan(
    model: keras.Model, loss_fn: LossLike, batch: Any, chunk_size: ChunkSize, position: Any
) -> _Plan:
    check_chunk_size(chunk_size)
    spec = WindowSpec(model, as_loss_function(loss_fn))
    size = resolve_chunk_size(chunk_size, lambda: row_bytes(spec, batch))
    layers = layers_by_norm_identity(spec, batch)
    covered = {id(v) for layer in layers for v in variables_of(layer)}
    others = [v for v in model.trainable_variables if id(v) not in covered]
    of_rows = chunk_gradients(spec, batch, layers, others)
    inputs = StepInputs(random_position=(*position, replica_index()))
    return _Plan(lambda part: of_rows(part, inputs)[1], size, sum_dtype(model))
