"""Compute the sums of a micro-batch with the gradient of each row clipped.

d_i = Σ w over the values of row i           (its weight; its weighted tokens for a sequence)
∇l_i = ∇(Σ w l over the values of row i) / d_i
gradients = Σ_i d_i ∇l_i min(1, c / ‖∇l_i‖)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from trainer_module.gradients.chunk_gradients import chunk_gradients, layers_by_norm_identity
from trainer_module.gradients.chunks import resolve_chunk_size, sum_chunks
from trainer_module.gradients.layer_gradients import variables_of
from trainer_module.gradients.row_gradients import number_rows
from trainer_module.window.describe import Description
from trainer_module.window.gradient_sum import sum_dtype
from trainer_module.window.micro_batch import MicroBatchGradients
from trainer_module.window.phases import phase_scope
from trainer_module.window.placement import Placement
from trainer_module.window.spec import Batch, StepInputs, WindowSpec


@dataclasses.dataclass(frozen=True)
class ClippedMicroBatch:
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
        """Return the sums of one micro-batch and their clipped gradients.

        Args:
            spec: Model and loss.
            batch: Rows `[micro_batch, ...]`.
            inputs: See `micro_batch_gradients`. Each row has separate random numbers.
            separate: False; see `plan_clipping`.
        """
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


def check_placement(placement: Placement, clip_norm: float) -> None:
    """Raise ValueError for a model on several devices."""
    if type(placement) is not Placement:
        raise ValueError(
            f"clip_per_example={clip_norm} with a model on several devices: the norm of a row's "
            "gradient needs all stages at once. Put the model on one device, or leave out "
            "clip_per_example; clip_norm is supported."
        )


def plan_clipping(
    spec: WindowSpec, batch: Batch, description: Description, clip_norm: float
) -> ClippedMicroBatch:
    """Return how the micro-batches of a window are clipped.

    Args:
        spec: Model and loss.
        batch: The replica's rows of a window; only shapes and dtypes count.
        description: The result of `describe` for the batch.
        clip_norm: c, above 0.

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
    return ClippedMicroBatch(clip_norm, layers, others, row_bytes, size)


def _factors(norms: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
    """Return min(1, limit / norm) of each row; 0 for a row without a weight.

    A norm that is not finite gives NaN, so that the window counts as not finite.
    """
    factors = tf.math.divide_no_nan(limits, tf.maximum(norms, limits))
    nan = tf.constant(float("nan"), norms.dtype)
    return tf.where(tf.math.is_finite(norms), factors, nan)
