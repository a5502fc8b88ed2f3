"""What a window, and a loop over windows, tell about themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from trainer_module.common.tensors import Variable


class StepReport(NamedTuple):
    """One window, as scalar tensors.

    Attributes:
        loss: The loss that the window's gradient is the slope of, regularisation included.
        gradient_norm: Global norm of g before clipping.
        weight_sum: Σ w_i; where outputs have one each, their mean.
        rows: Rows of the global batch.
        applied: Whether the window updated the variables.
        failed: Whether it was not finite and `non_finite="raise"` holds.
        finite: One bool for the loss and one per trainable variable.
        finite_by_replica: Bools `[replicas of this process, 1 + variables]`, of their own sums.
        replicas: Numbers of these replicas.
    """

    loss: tf.Tensor
    gradient_norm: tf.Tensor
    weight_sum: tf.Tensor
    rows: tf.Tensor
    applied: tf.Tensor
    failed: tf.Tensor
    finite: tf.Tensor
    finite_by_replica: tf.Tensor
    replicas: tf.Tensor


class LoopReport(NamedTuple):
    """Several windows.

    Attributes:
        steps: Windows taken from the iterator, the failed one excepted.
        loss: Mean of the windows' losses, weighted by their Σ w_i; NaN when that is 0.
        loss_sums: Σ over windows of Σ w_i times the loss, and of Σ w_i, on top of those given to
            `run`: their quotient is the mean over all those runs, however many there were.
        gradient_norm: That of the last window.
        rows: Rows of all windows.
        exhausted: Whether the iterator had fewer windows than asked for.
    """

    steps: int
    loss: float
    loss_sums: tuple[float, float]
    gradient_norm: float
    rows: int
    exhausted: bool


class NonFiniteError(ArithmeticError):
    """A window's loss or gradient was NaN or infinite; the variables are those before it."""


def non_finite_error(
    report: StepReport,
    variables: Sequence[Variable],
    step: int,
    *,
    replicas: Sequence[int] = (),
    skipped: int = 0,
) -> NonFiniteError:
    """Returns the error of a failed window: where it is not finite, and what to look at.

    Args:
        report: Of the window.
        variables: The model's trainable variables, as `report.finite` counts them.
        step: Optimizer steps until then.
        replicas: Numbers of those, of several, whose own sums are not finite.
        skipped: Windows right before it that were left out as not finite.
    """
    finite = report.finite.numpy()
    culprits = ""
    if replicas:
        culprits = f" on replica{'s' * (len(replicas) > 1)} {', '.join(map(str, replicas))}"
    names = [v.path for v, ok in zip(variables, finite[1:], strict=True) if not ok]
    where = "the loss" if not finite[0] else "the gradient's norm"
    if names:
        where = f"the gradient of {', '.join(names[:5])}"
    if len(names) > 5:
        where += f" and {len(names) - 5} more"
    advice = (
        'set clip_norm; or set non_finite="skip" to leave such windows out.'
        if not skipped
        else "set clip_norm; or raise max_consecutive_skips."
    )
    return NonFiniteError(
        f"step {step + 1}: {where} is not finite{culprits} (loss {float(report.loss)})"
        + (f", and {skipped} windows right before it were left out for that" if skipped else "")
        + "; the variables are those of the step before. Look for NaN or infinite values in the "
        "features, labels and weights, and for weights below 0; lower the learning rate or "
        + advice
    )


def local_nonfinite_replicas(report: StepReport) -> list[int]:
    """Returns the numbers of this process' replicas whose own sums are not finite."""
    flags = report.finite_by_replica.numpy()
    numbers = report.replicas.numpy().tolist()
    return [number for number, finite in zip(numbers, flags, strict=True) if not finite.all()]
