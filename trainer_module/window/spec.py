"""What the micro-batches of a window have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from trainer_module.common.tensors import Tensors
from trainer_module.losses.weighted_loss import LossFunction
from trainer_module.options.step_options import AddedLosses
from trainer_module.window.placement import Placement, placement_of

# (variable, tensor) pairs to use instead of reading the variables; empty: read the variables.
VariableValues = Sequence[tuple[Any, tf.Tensor]]


class Batch(NamedTuple):
    """Rows of a batch, or of a micro-batch.

    Attributes:
        features: Tensor or structure of tensors `[rows, ...]`.
        labels: Tensor or structure of tensors `[rows, ...]`, as the loss takes them.
        sample_weight: `[rows]` or a structure, or None.
    """

    features: Tensors
    labels: Tensors
    sample_weight: Tensors = None


@dataclasses.dataclass(frozen=True)
class WindowSpec:
    """A model, its loss, and how a window is cut: the same for all windows of a training.

    Attributes:
        model: A built Keras model.
        loss_fn: `(labels, outputs, sample_weight) -> (numerator, denominator)`.
        added_losses: Whether what layers pass to `add_loss` is a mean or a sum over rows.
        micro_batch_size: Rows of one micro-batch.
        jit_compile: Compile full micro-batches by XLA.
        expected_rows: Rows of most batches on one replica, or None.
    """

    model: keras.Model
    loss_fn: LossFunction
    added_losses: AddedLosses = "mean"
    micro_batch_size: int = 1
    jit_compile: bool = False
    expected_rows: int | None = None

    @property
    def placement(self) -> Placement:
        """Where the model's sums are computed."""
        return placement_of(self.model)


class StepInputs(NamedTuple):
    """What one optimizer step gives to its window.

    Attributes:
        random_position: Integers that say where in the run the step stands. Dropout masks are a
            function of the model's seeds and of them.
        loss_scale: Factor of all gradients, for float16; None: 1.
        values: See `VariableValues`.
    """

    random_position: Sequence[Any] = ()
    loss_scale: tf.Tensor | None = None
    values: VariableValues = ()
