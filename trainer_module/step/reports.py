"""Reports of one window and of a loop over windows, and what a training loop asks of a step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import keras
import numpy as np
import tensorflow as tf

from trainer_module.common.tensors import LossFunction, Tensors, Variable
from trainer_module.options.step_options import StepOptions


class StepReport(NamedTuple):
    """The report of one window; scalar tensors except for the last two.

    Attributes:
        loss, gradient_norm, weight_sum, rows, finite: See `Update`.
        applied: Whether the window updated the variables, bool.
        failed: Whether the window was not finite and is not skipped, bool.
        finite_by_replica: `finite` of the sums of each replica of this process, bool
            `[replicas, 1 + variables]`.
    """

    loss: tf.Tensor
    gradient_norm: tf.Tensor
    weight_sum: tf.Tensor
    rows: tf.Tensor
    applied: tf.Tensor
    failed: tf.Tensor
    finite: tf.Tensor
    finite_by_replica: tf.Tensor


def empty_report(dtype: tf.DType, variables: int, replicas: int) -> StepReport:
    """Return the report of no window."""
    scalar, no, flags = tf.zeros([], dtype), tf.constant(False), [1 + variables]
    return StepReport(
        *(scalar, scalar, scalar, scalar, no, no),
        finite=tf.ones(flags, tf.bool),
        finite_by_replica=tf.ones([replicas, *flags], tf.bool),
    )


class LoopReport(NamedTuple):
    """The report of several windows.

    Attributes:
        steps: Number of windows taken from the iterator, without a failed one.
        loss: Mean of the windows' losses, weighted by their Σ w_i; NaN if the weights sum to 0.
        loss_sums: Σ over windows of Σ w_i times the loss, and of Σ w_i, added to the `loss_sums`
            argument of `run`. Their quotient is the mean loss over all these runs.
        gradient_norm: Global norm of g before clipping, of the last window.
        rows: Number of rows of all windows.
        exhausted: Whether the iterator had fewer windows than requested.
        noise_scale: Gradient noise scale in rows; NaN if it is not measured.
    """

    steps: int
    loss: float
    loss_sums: tuple[float, float]
    gradient_norm: float
    rows: int
    exhausted: bool
    noise_scale: float = float("nan")


class ServerLost(RuntimeError):
    """Raised if a parameter server is lost, together with its variables."""


class NonFiniteError(ArithmeticError):
    """Raised if a window's loss or gradient is NaN or infinite; it did not update variables."""


def non_finite_error(
    report: StepReport,
    variables: Sequence[Variable],
    step: int,
    *,
    replicas: Sequence[int] = (),
    skipped: int = 0,
) -> NonFiniteError:
    """Return the error of a failed window, with the place that is not finite and advice."""
    finite = np.asarray(report.finite)
    on_replicas = ""
    if replicas:
        on_replicas = f" on replica{'s' * (len(replicas) > 1)} {', '.join(map(str, replicas))}"
    names = [v.path for v, ok in zip(variables, finite[1:], strict=True) if not ok]
    where = "the loss" if not finite[0] else "the gradient's norm"
    if names:
        where = f"the gradient of {', '.join(names[:5])}"
    if len(names) > 5:
        where += f" and {len(names) - 5} more"
    advice = (
        'set clip_norm; or set non_finite="skip" to skip such windows.'
        if not skipped
        else "set clip_norm; or raise max_consecutive_skips."
    )
    return NonFiniteError(
        f"step {step + 1}: {where} is not finite{on_replicas} (loss {float(report.loss)})"
        + (
            f", and {skipped} windows directly before it were skipped as not finite"
            if skipped
            else ""
        )
        + "; the variables are those of the step before. Look for NaN or infinite values in the "
        "features, labels and weights, and for weights below 0; with XLA or on a GPU, for ids and "
        "classes that the model does not have; lower the learning rate or " + advice
    )


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
