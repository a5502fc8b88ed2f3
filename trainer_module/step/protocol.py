"""What a training loop sees of a step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import keras
import tensorflow as tf

from trainer_module.losses.weighted_loss import LossFunction
from trainer_module.options.step_options import StepOptions
from trainer_module.step.reports import LoopReport


@runtime_checkable
class Step(Protocol):
    """Optimizer steps over global batches: `TrainStep`, `ParameterServerStep`, or your own.

    Attributes:
        model: What is trained.
        optimizer: What updates its variables.
        loss_fn: `(labels, outputs, sample_weight) -> (numerator, denominator)`.
        options: What the step was made with.
        strategy: Where evaluation and callbacks run.
        step: Counts the windows, int64.
    """

    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    loss_fn: LossFunction
    options: StepOptions
    strategy: tf.distribute.Strategy
    step: tf.Variable

    def run(
        self, iterator: Iterator[Any], num_steps: int, *, loss_sums: Sequence[float] = (0.0, 0.0)
    ) -> LoopReport:
        """Take up to `num_steps` optimizer steps: see `TrainStep.run`."""
        ...

    def state(self) -> list[tf.Variable]:
        """Return the variables of a checkpoint beside those of model and optimizer."""
        ...

    @property
    def skipped(self) -> dict[str, int]:
        """Windows that updated nothing, by reason."""
        ...

    @property
    def averages(self) -> Sequence[tf.Variable]:
        """The moving average of each trainable variable; empty without."""
        ...

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """Put the moving average into the model for a `with` block."""
        ...

    def use_averages(self) -> None:
        """Put the moving average into the model for good."""
        ...
