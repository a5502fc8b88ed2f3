"""Types that the micro-batches of a window share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import keras
import tensorflow as tf

from trainer_module.common.tensors import Tensors, VariableValues
from trainer_module.losses.weighted_loss import LossFunction
from trainer_module.options.step_options import AddedLosses
from trainer_module.window.placement import Placement, placement_of

# An int, or an integer scalar tensor.
Index: TypeAlias = tf.Tensor | int


class Batch(NamedTuple):
    """Rows of a batch or of a micro-batch.

    Attributes:
        features: Tensor or structure of tensors `[rows, ...]`.
        labels: Tensor or structure of tensors `[rows, ...]`, as the loss expects them.
        sample_weight: Tensor or structure of tensors `[rows]`, or None.
    """

    features: Tensors
    labels: Tensors
    sample_weight: Tensors = None


@dataclasses.dataclass(frozen=True)
class WindowSpec:
    """The model, the loss and the micro-batch size; the same for all windows of a training run.

    Attributes:
        model: A built Keras model.
        loss_fn: `(labels, outputs, sample_weight) -> (numerator, denominator)`.
        added_losses: Whether what layers pass to `add_loss` is a mean or a sum over rows.
        micro_batch_size: Number of rows of one micro-batch.
        jit_compile: Whether to compile full micro-batches with XLA.
        expected_rows: Number of rows of most batches on one replica, or None.
    """

    model: keras.Model
    loss_fn: LossFunction
    added_losses: AddedLosses = "mean"
    micro_batch_size: int = 1
    jit_compile: bool = False
    expected_rows: int | None = None

    @property
    def placement(self) -> Placement:
        """The placement of the model's sums."""
        return placement_of(self.model)


class StepInputs(NamedTuple):
    """The inputs of a window that change from step to step.

    Attributes:
        random_position: Integers that identify the position in the run, such as the step number.
            Dropout masks are a function of the model's seeds and these integers.
        loss_scale: Factor of all gradients, for float16; None: 1.
        values: See `VariableValues`; empty: read the variables.
        log_weights: Logarithm of the weight of each task, `[tasks]`, for `task_balance`; None: all
            weights are 1.
        measures_noise: Whether to sum the squares of this window's passes, scalar bool; None: no
            window's.
    """

    random_position: Sequence[Index] = ()
    loss_scale: tf.Tensor | None = None
    values: VariableValues = ()
    log_weights: tf.Tensor | None = None
    measures_noise: tf.Tensor | None = None
