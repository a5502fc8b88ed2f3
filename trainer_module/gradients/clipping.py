"""Compute the norm of each row's gradient, and the sum of the clipped gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from trainer_module.checks.model import computes_in_float16
from trainer_module.checks.randomness import draws_random_numbers
from trainer_module.checks.state_updates import reject_updates
from trainer_module.common.tensors import LossLike, Tensors
from trainer_module.gradients.checked_batch import checked_batch
from trainer_module.gradients.chunks import (
    ChunkSize,
    map_chunks,
    sum_chunks,
    sum_tensors_over_replicas,
)
from trainer_module.gradients.layer_gradients import (
    LayerGradients,
    join_calls,
    recorded_calls,
    supported_layers,
    variables_of,
)
from trainer_module.gradients.reductions import check_clip_norm, clip_factors
from trainer_module.gradients.row_gradients import RowGradients, number_rows, row_gradients
from trainer_module.losses.weighted_loss import as_loss_function, loss_sums
from trainer_module.window.gradient_sum import sum_dtype
from trainer_module.window.spec import Batch, WindowSpec

# A prime that no other axis of a model has, to recognise the axis of rows.
_PROBE_ROWS = 104_729


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

    The gradients of Dense and Embedding layers are not materialised: their norms are computed from
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
    batch = checked_batch(model, loss_fn, features, labels, sample_weight, by="gradient_norms")
    plan = _plan(model, loss_fn, batch, chunk_size, random_position)

    def of_chunk(part: Any) -> list[tf.Tensor]:
        return [_norms(part, *_chunk_gradients(plan, part), plan.dtype)]

    specs = [(plan.dtype, [])]
    size = plan.others.chunk_size
    return map_chunks(of_chunk, number_rows(batch), specs, chunk_size=size)[0]


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
    check_clip_norm(clip_norm)
    batch = checked_batch(
        model, loss_fn, features, labels, sample_weight, by="clipped_gradient_sum"
    )
    plan = _plan(model, loss_fn, batch, chunk_size, random_position)
    variables = model.trainable_variables

    def of_chunk(part: Any) -> list[tf.Tensor]:
        layers, others = _chunk_gradients(plan, part)
        factors = clip_factors(_norms(part, layers, others, plan.dtype), clip_norm)
        sums = {id(v): tf.zeros(v.shape, plan.dtype) for v in variables}
        for layer in layers:
            found = layer.weighted_sums(factors)
            sums |= {id(v): s for v, s in zip(variables_of(layer.layer), found, strict=True)}
        for variable, gradients in zip(plan.other_variables, others, strict=True):
            gradients = tf.cast(gradients, plan.dtype)
            sums[id(variable)] = tf.tensordot(tf.cast(factors, plan.dtype), gradients, 1)
        return [sums[id(v)] for v in variables]

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


def layers_by_norm_identity(spec: WindowSpec, batch: Any) -> list[keras.layers.Layer]:
    """Return the layers for which `LayerGradients` is exact in this model.

    A trace shows whether a layer's calls have the rows on their first axis, whether the loss
    depends on their outputs, and whether the layer's variables are used elsewhere too.
    """
    if computes_in_float16(spec.model):
        return []
    layers = supported_layers(spec.model)
    owners: dict[int, int] = {}
    for layer in layers:
        for variable in variables_of(layer):
            owners[id(variable)] = owners.get(id(variable), 0) + 1
    layers = [x for x in layers if all(owners[id(v)] == 1 for v in variables_of(x))]
    signature = tf.nest.map_structure(
        lambda t: None if t is None else tf.TensorSpec([_PROBE_ROWS, *t.shape[1:]], t.dtype), batch
    )
    exact: list[keras.layers.Layer] = []

    def probe(*parts: Any) -> None:
        graph = tf.compat.v1.get_default_graph()
        with tf.GradientTape(persistent=True) as tape:
            total, calls = _forward(spec, Batch(*parts), layers, tape)
        for index, layer in enumerate(layers):
            fits = all(
                tensor.graph is graph and tensor.shape.rank and tensor.shape[0] == _PROBE_ROWS
                for call in calls[index]
                for tensor in call
            )
            elsewhere = tape.gradient(total, [v.value for v in variables_of(layer)])
            # In a loop that TensorFlow vectorises, the outputs are not those that the loss uses.
            found = tape.gradient(total, [call.outputs for call in calls[index]]) if fits else []
            is_used = all(gradient is not None for gradient in found)
            if fits and is_used and all(gradient is None for gradient in elsewhere):
                exact.append(layer)

    traced = tf.function(probe, autograph=False).get_concrete_function(*signature)
    # Each row needs the same random numbers as in `per_example_gradients`.
    return [] if draws_random_numbers(traced.graph) else exact


def _forward(
    spec: WindowSpec, batch: Batch, layers: Sequence[keras.layers.Layer], tape: tf.GradientTape
) -> tuple[tf.Tensor, dict[int, Any]]:
    scope = keras.StatelessScope([], collect_losses=True, initialize_variables=False)
    with recorded_calls(layers, tape) as calls, scope:
        outputs = spec.model(batch.features, training=True)
    sums = loss_sums(spec.loss_fn, batch.labels, outputs, batch.sample_weight)
    seeds = [v for v in spec.model.variables if v.name == "seed_generator_state"]
    reject_updates(spec.model, scope, [], seeds)
    return tf.reduce_sum(sums.numerator), calls


def _chunk_gradients(plan: _Plan, part: Any) -> tuple[list[LayerGradients], list[tf.Tensor]]:
    """Return the gradients of the plan's layers, and the others `[rows, *variable.shape]`."""
    rows, _ = part
    found: list[LayerGradients] = []
    if plan.layers:
        with tf.GradientTape() as tape:
            total, calls = _forward(plan.spec, Batch(*rows), plan.layers, tape)
        outputs = [[call.outputs for call in calls[i]] for i in range(len(plan.layers))]
        gradients = tape.gradient(total, outputs)
        for index, layer in enumerate(plan.layers):
            joined = join_calls(layer, calls[index], gradients[index])
            if joined is not None:
                found.append(joined)
    others = plan.others.of_chunk(part) if plan.other_variables else []
    return found, others


def _norms(
    part: Any, layers: Sequence[LayerGradients], others: Sequence[tf.Tensor], dtype: tf.DType
) -> tf.Tensor:
    squares = [tf.zeros(tf.shape(part[1]), dtype)]
    squares += [tf.cast(layer.squared_norms(), dtype) for layer in layers]
    for gradients in others:
        flat = tf.reshape(tf.cast(gradients, dtype), [tf.shape(gradients)[0], -1])
        squares.append(tf.reduce_sum(tf.square(flat), 1))
    # Rounding of a sum of products may leave less than 0.
    return tf.sqrt(tf.maximum(tf.add_n(squares), 0))
