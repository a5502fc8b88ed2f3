"""Compute the norm of each row's gradient, and the sum of the clipped gradients.

d_i = Σ w over the values of row i           (its weight; its weighted tokens for a sequence)
∇l_i = ∇(Σ w l over the values of row i) / d_i
gradients = Σ_i d_i ∇l_i min(1, c / ‖∇l_i‖)
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from trainer_module.checks.batch import translate_tf_errors
from trainer_module.common.keras_arguments import naming_replacements
from trainer_module.common.tensors import LossLike, Tensors
from trainer_module.devices.replicas import replica_index
from trainer_module.gradients.arguments import checked_batch
from trainer_module.gradients.layer_gradients import (
    ChunkGradients,
    chunk_gradients,
    layers_by_norm_identity,
    variables_of,
)
from trainer_module.gradients.per_example import clip_factors
from trainer_module.gradients.row_gradients import (
    ChunkSize,
    check_chunk_size,
    map_chunks,
    number_rows,
    resolve_chunk_size,
    row_bytes,
    sum_chunks,
    sum_tensors_over_replicas,
)
from trainer_module.losses.weighted_loss import as_loss_function
from trainer_module.window.describe import Description
from trainer_module.window.gradient_sum import sum_dtype
from trainer_module.window.micro_batch import MicroBatchGradients
from trainer_module.window.spec import Batch, Placement, StepInputs, WindowSpec, placement_of
from trainer_module.window.trace import phase_scope


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
    is_number = isinstance(clip_norm, numbers.Real) and not isinstance(clip_norm, bool)
    if not is_number or not 0 < clip_norm < math.inf:
        raise ValueError(f"clip_norm={clip_norm!r}: use a finite number above 0, such as 1.0.")
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


@dataclasses.dataclass(frozen=True)
class _ClippedMicroBatch:
    """Replaces `micro_batch_gradients` in a window whose rows are clipped.

    Attributes:
        clip_norm: c.
        layers: Layers whose gradients are not materialised (see `layers_by_norm_identity`).
        others: All other trainable variables that the loss depends on.
        row_bytes: Estimate of the memory of one row, in bytes.
        chunk_size: Number of rows whose gradients are materialised at a time; None: all rows of a
            micro-batch.
    """

    clip_norm: float
    layers: Sequence[keras.layers.Layer]
    others: Sequence[Any]
    row_bytes: float
    chunk_size: int | None

    def __call__(
        self, spec: WindowSpec, batch: Batch, inputs: StepInputs, *, separate: bool
    ) -> MicroBatchGradients:
        """Return the sums of one micro-batch and their clipped gradients."""
        assert not separate
        variables = spec.model.trainable_variables
        dtype = sum_dtype(spec.model)
        limit = tf.constant(self.clip_norm, dtype)
        if inputs.loss_scale is not None:
            limit *= tf.cast(inputs.loss_scale, dtype)
        used = [v for v in variables if id(v) in self._used]

        of_rows = chunk_gradients(spec, batch, self.layers, self.others)

        def of_chunk(part: Any) -> list[tf.Tensor]:
            sums, gradients = of_rows(part, inputs)
            with phase_scope("backward"):
                norms = gradients.norms(tf.shape(part[1])[0], dtype)
                factors = _factors(norms, limit * tf.cast(sums.denominator, dtype))
                found = gradients.weighted_sums(factors)
                return [*map(tf.reduce_sum, sums), *(found[id(v)] for v in used)]

        data = number_rows(batch)
        known = tf.nest.flatten(batch.features)[0].shape[0]
        if self.chunk_size is None or (known is not None and known <= self.chunk_size):
            sums = of_chunk(data)
        else:
            specs = [(dtype, []), (dtype, []), *((dtype, list(v.shape)) for v in used)]
            sums = sum_chunks(of_chunk, data, specs, chunk_size=self.chunk_size)
        numerator, denominator, *found = sums
        rest = iter(found)
        return MicroBatchGradients(
            numerator=numerator,
            denominator=denominator,
            gradients=[next(rest) if id(v) in self._used else None for v in variables],
            added_loss=None,
            added_gradients=None,
        )

    @property
    def _used(self) -> set[int]:
        return {id(v) for layer in self.layers for v in variables_of(layer)} | set(
            map(id, self.others)
        )


def check_placement(model: keras.Model, clip_norm: float) -> None:
    """Raise ValueError for a model on several devices."""
    if type(placement_of(model)) is not Placement:
        raise ValueError(
            f"clip_per_example={clip_norm} with a model on several devices: the norm of a row's "
            "gradient needs all stages at once. Put the model on one device, or leave out "
            "clip_per_example; clip_norm is supported."
        )


def plan_clipping(
    spec: WindowSpec, batch: Batch, description: Description, clip_norm: float
) -> _ClippedMicroBatch:
    """Return how the micro-batches of a window are clipped.

    Raises:
        ValueError: The gradient of a row is not defined.
    """
    if description.outputs is not None:
        raise ValueError(
            f"clip_per_example={clip_norm} with outputs that have separate sums of weights: the "
            "gradient of a row is not defined. Give one sample weight per row for all outputs and "
            "no masks, or leave out clip_per_example."
        )
    if description.has_added_gradient is not None:
        raise ValueError(
            f"clip_per_example={clip_norm} with layers that call add_loss or have an "
            "activity_regularizer: these losses do not belong to a row. Add them to the loss "
            "function, use a kernel_regularizer, or leave out clip_per_example."
        )
    layers = layers_by_norm_identity(spec, batch)
    pairs = zip(spec.model.trainable_variables, description.has_gradient, strict=True)
    used = {id(v): v for v, has in pairs if has}
    layers = [x for x in layers if all(id(v) in used for v in variables_of(x))]
    covered = {id(v) for layer in layers for v in variables_of(layer)}
    others = [v for key, v in used.items() if key not in covered]
    gradients = sum(math.prod(v.shape) * tf.as_dtype(v.dtype).size for v in others)
    row_bytes = description.bytes_per_row + 2 * gradients
    # XLA needs static shapes, which the last chunk of a loop does not have.
    is_whole = not others or spec.jit_compile
    size = None if is_whole else resolve_chunk_size("auto", lambda: row_bytes)
    return _ClippedMicroBatch(clip_norm, layers, others, row_bytes, size)


def _factors(norms: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
    """Return min(1, limit / norm) of each row; 0 for a row without a weight.

    A norm that is not finite gives NaN, so that the window counts as not finite.
    """
    factors = tf.math.divide_no_nan(limits, tf.maximum(norms, limits))
    nan = tf.constant(float("nan"), norms.dtype)
    return tf.where(tf.math.is_finite(norms), factors, nan)
