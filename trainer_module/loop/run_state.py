"""The state of a training between two calls of the graph, and its calls of `fit`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

from absl import logging

from trainer_module.common.tensors import Json
from trainer_module.common.user_values import check_positive_int
from trainer_module.loop.callback import FitResult
from trainer_module.step.reports import LoopReport


@dataclasses.dataclass(frozen=True)
class LoopState:
    """The state of a training. It is immutable: each change returns a new record.

    Attributes:
        epoch: Number of completed epochs.
        step_in_epoch: Steps taken in the current epoch.
        unevaluated_steps: Steps since the last evaluation.
        epoch_loss: Σ loss · Σ w and Σ w over the windows of the current epoch.
        metrics: Metrics of the last evaluation.
        stopped: Why training ended ("epochs", "steps", "early_stopping"); None while it runs.
    """

    epoch: int = 0
    step_in_epoch: int = 0
    unevaluated_steps: int = 0
    epoch_loss: tuple[float, float] = (0.0, 0.0)
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    stopped: str | None = None

    def replace(self, **changes: object) -> LoopState:
        """Return a copy with changed fields."""
        return dataclasses.replace(self, **changes)

    def after_call(self, report: LoopReport) -> LoopState:
        """Return the state after a call of the graph."""
        return self.replace(
            step_in_epoch=self.step_in_epoch + report.steps,
            unevaluated_steps=self.unevaluated_steps + report.steps,
            epoch_loss=report.loss_sums if report.steps else self.epoch_loss,
        )

    def after_epoch(self) -> LoopState:
        """Return the state at the start of the next epoch."""
        return self.replace(epoch=self.epoch + 1, step_in_epoch=0, epoch_loss=(0.0, 0.0))

    @property
    def epochs_begun(self) -> int:
        """Number of epochs with at least one step."""
        return self.epoch + bool(self.step_in_epoch)

    @property
    def mean_epoch_loss(self) -> float:
        """Mean loss of the current epoch; NaN if its weights sum to 0."""
        total, weights = self.epoch_loss
        return total / weights if weights else math.nan

    def to_json(self) -> dict[str, Json]:
        """Return the fields in the format of a checkpoint."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Json]) -> LoopState:
        """Return the state from the output of `to_json`."""
        values = {field.name: stored[field.name] for field in dataclasses.fields(cls)}
        return cls(**{**values, "epoch_loss": tuple(values["epoch_loss"])})


class Length(NamedTuple):
    """Length of training, as a number of epochs or of steps."""

    kind: Literal["epochs", "steps"]
    amount: int

    @classmethod
    def of(cls, epochs: int | None, steps: int | None) -> Length:
        """Return the length from the one argument that is given.

        Raises:
            ValueError: Both or neither are given, or the number is below 1.
        """
        if (epochs is None) == (steps is None):
            raise ValueError(f"epochs={epochs} and steps={steps}: give exactly one of them.")
        if steps is None:
            return cls("epochs", check_positive_int("epochs", epochs))
        return cls("steps", check_positive_int("steps", steps))


class _FitCall(NamedTuple):
    """One call of `fit`.

    Attributes:
        begin: Completed epochs and steps of the run when the call began.
        length: Epochs or steps that the call adds.
        result: The fields of its `FitResult`; None while it runs.
    """

    begin: Mapping[str, int]
    length: Length
    result: dict[str, Json] | None = None

    def last(self, kind: str) -> int | None:
        """Return the run's last epoch or step in this call; None if the other one limits it."""
        return self.begin[kind] + self.length.amount if self.length.kind == kind else None


class RunHistory:
    """The calls of `fit` of a run, in order, and the epoch logs of the last call."""

    def __init__(self) -> None:
        """Start without calls."""
        self.calls: list[_FitCall] = []
        self.logs: dict[str, list[float]] = {}

    @property
    def call(self) -> _FitCall:
        """The last call."""
        return self.calls[-1]

    def begin_call(self, length: Length, *, epoch: int, step: int) -> None:
        """Add a call that begins at this epoch and step."""
        self.logs = {}
        self.calls.append(_FitCall({"epochs": epoch, "steps": step}, length))

    def continue_call(
        self, length: Length, state: LoopState, *, step: int, directory: str
    ) -> LoopState:
        """Continue the checkpoint's last call, possibly with a longer length.

        Returns:
            The state. `stopped` is None if steps remain.

        Raises:
            ValueError: The checkpoint is from a longer run.
        """
        kind, amount = length
        before = self.call.length
        goal = self.call.begin[kind] + amount
        reached = step if kind == "steps" else state.epoch
        if reached > goal or (kind == "epochs" and reached == goal and state.step_in_epoch):
            raise ValueError(
                f"{kind}={amount}, but the checkpoint in {directory} is of step {step}, epoch "
                f"{state.epochs_begun} of a longer run ({before.kind}={before.amount}): give at "
                "least as many, another folder, or delete it to start over."
            )
        self.calls[-1] = self.call._replace(length=length)
        if state.stopped == "early_stopping":
            logging.info("The run of the checkpoint has ended: it was stopped early")
        elif state.stopped is not None and reached < goal:
            logging.info("The run has grown to %s=%d: training continues", kind, amount)
            self.calls[-1] = self.call._replace(result=None)
            return state.replace(stopped=None)
        return state

    def set_result(self, result: FitResult) -> None:
        """Record the result of the last call."""
        self.calls[-1] = self.call._replace(result=result._asdict())

    def result(self, number: int) -> FitResult:
        """Return the result of a completed call, counted from 0."""
        return FitResult(**(self.calls[number].result or {}))

    def add_epoch(self, logs: Mapping[str, float]) -> None:
        """Add the logs of an epoch."""
        for name, value in logs.items():
            self.logs.setdefault(name, []).append(float(value))

    def to_json(self) -> dict[str, Json]:
        """Return calls and logs in the format of a checkpoint."""
        return {"calls": [call._asdict() for call in self.calls], "history": self.logs}

    def restore(self, stored: Mapping[str, Json]) -> None:
        """Restore the output of `to_json`."""
        self.logs = stored["history"]
        self.calls = [
            _FitCall(call["begin"], Length(*call["length"]), call["result"])
            for call in stored["calls"]
        ]
