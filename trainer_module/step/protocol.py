"""The interface between a training loop and its steps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import keras
import tensorflow as tf

from trainer_module.common.tensors import Tensors
from trainer_module.losses.weighted_loss import LossFunction
from trainer_module.options.step_options import StepOptions
from trainer_module.step.reports import LoopReport


class ServerLost(RuntimeError):
    """Raised if a parameter server is lost, together with its variables."""


@runtime_checkable
class Step(Protocol):
    """Optimizer steps over global batches: `TrainStep`, `ParameterServerStep` or a custom class.

    Attributes:
        model: The model to train.
        optimizer: The optimizer of its variables.
        loss_fn: `(labels, outputs, sample_weight) -> (numerator, denominator)`.
        options: The options of the step.
        strategy: The strategy under which evaluation and callbacks run.
        step: The number of windows taken, int64 scalar.
    """

    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    loss_fn: LossFunction
    options: StepOptions
    strategy: tf.distribute.Strategy
    step: tf.Variable

    def run(
        self,
        iterator: Iterator[Tensors],
        num_steps: int,
        *,
        loss_sums: Sequence[float] = (0.0, 0.0),
    ) -> LoopReport:
        """Take up to `num_steps` optimizer steps; see `TrainStep.run`."""
        ...

    def state(self) -> list[tf.Variable]:
        """Return the variables to checkpoint in addition to those of model and optimizer."""
        ...

    @property
    def skipped(self) -> dict[str, int]:
        """The number of windows that updated nothing, by reason."""
        ...

    @property
    def averages(self) -> Sequence[tf.Variable]:
        """The moving average of each trainable variable; empty if there is no average."""
        ...

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the model's variables have their moving averages."""
        ...

    def use_averages(self) -> None:
        """Assign the moving averages to the model's variables."""
        ...
