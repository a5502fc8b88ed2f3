"""Compute the norm of each row's gradient, and the sum of the clipped gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from trainer_module.checks.tf_errors import translate_tf_errors
from trainer_module.common.tensors import LossLike, Tensors
from trainer_module.gradients.arguments import check_positive_number, checked_batch
from trainer_module.gradients.chunk_gradients import (
    ChunkGradients,
    layer_gradients,
    layers_by_norm_identity,
)
from trainer_module.gradients.chunks import (
    ChunkSize,
    check_chunk_size,
    map_chunks,
    sum_chunks,
    sum_tensors_over_replicas,
)
from trainer_module.gradients.layer_gradients import variables_of
from trainer_module.gradients.reductions import clip_factors
from trainer_module.gradients.row_gradients import RowGradients, number_rows, row_gradients
from trainer_module.losses.weighted_loss import as_loss_function
from trainer_module.window.gradient_sum import sum_dtype
from trainer_module.window.spec import Batch, WindowSpec


@translate_tf_errors()
def gradient_norms(
    model: keras.Model,
    loss_fn: LossLike,
    features: Tensors,
    labels: Tensors,
    sample_weight: Tensors = None,
    *,
    chunk_size: ChunkSize,
    random_position: Sequence[Any] = (),
) -> tf.Tensor:
    """Return ‖w_i ∇l_i‖ for each row i.

    The gradients of Dense layers and embeddings are not materialised: their norms are computed from
    the inputs and the gradients of the outputs (Goodfellow 2015, arXiv:1510.01799). All other
    layers, layers that share a variable, and models with random numbers go through
    `per_example_gradients`. Like there, a row's loss must not depend on other rows.

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
        return [_chunk_gradients(plan, part).norms(tf.shape(part[1])[0], plan.dtype)]

    specs = [(plan.dtype, [])]
    size = plan.others.chunk_size
    return map_chunks(of_chunk, number_rows(batch), specs, chunk_size=size)[0]


@translate_tf_errors()
def clipped_gradient_sum(
    model: keras.Model,
    loss_fn: LossLike,
    features: Tensors,
    labels: Tensors,
    sample_weight: Tensors = None,
    *,
    clip_norm: float,
    chunk_size: ChunkSize,
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
        gradients = _chunk_gradients(plan, part)
        norms = gradients.norms(tf.shape(part[1])[0], plan.dtype)
        sums = gradients.weighted_sums(clip_factors(norms, clip_norm))
        return [sums.get(id(v), tf.zeros(v.shape, plan.dtype)) for v in variables]

    specs = [(plan.dtype, list(v.shape)) for v in variables]
    sums = sum_chunks(of_chunk, number_rows(batch), specs, chunk_size=plan.others.chunk_size)
    return sum_tensors_over_replicas(sums)


class _Plan(NamedTuple):
    """Which layers' gradients are not materialised, and how all others are computed."""

    spec: WindowSpec
    layers: list[keras.layers.Layer]
    other_variables: list[Any]
    others: RowGradients
    dtype: tf.DType


def _plan(
    model: keras.Model, loss_fn: LossLike, batch: Any, chunk_size: ChunkSize, position: Any
) -> _Plan:
    check_chunk_size(chunk_size)
    spec = WindowSpec(model, as_loss_function(loss_fn))
    layers = layers_by_norm_identity(spec, batch)
    covered = {id(v) for layer in layers for v in variables_of(layer)}
    others = [v for v in model.trainable_variables if id(v) not in covered]
    rows = row_gradients(
        spec,
        batch,
        chunk_size=chunk_size,
        fold=lambda gradients: gradients,
        variables=others,
        random_position=position,
    )
    return _Plan(spec, layers, others, rows, sum_dtype(model))


def _chunk_gradients(plan: _Plan, part: Any) -> ChunkGradients:
    rows, _ = part
    found = layer_gradients(plan.spec, Batch(*rows), plan.layers)[1] if plan.layers else []
    others = plan.others.of_chunk(part) if plan.other_variables else []
    return ChunkGradients(found, plan.other_variables, others)
