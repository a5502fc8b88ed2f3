"""The calls of `fit` that a run consists of, and what each epoch logged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from absl import logging

from trainer_module.common.positive_int import check_positive_int
from trainer_module.loop.callbacks import FitResult
from trainer_module.loop.loop_state import LoopState


class Length(NamedTuple):
    """A length of training: so many epochs, or so many steps."""

    kind: Literal["epochs", "steps"]
    amount: int

    @classmethod
    def of(cls, epochs: int | None, steps: int | None) -> Length:
        """Return the length that one of the two numbers gives.

        Raises:
            ValueError: Both or none are given, or the number is below 1.
        """
        if (epochs is None) == (steps is None):
            raise ValueError(f"epochs={epochs} and steps={steps}: give exactly one of them.")
        if steps is None:
            return cls("epochs", check_positive_int("epochs", epochs))
        return cls("steps", check_positive_int("steps", steps))


class FitCall(NamedTuple):
    """One call of `fit`.

    Attributes:
        begin: Epochs and steps of the run when the call began.
        length: How many more of one of them it takes.
        result: The fields of its `FitResult`; None while it runs.
    """

    begin: Mapping[str, int]
    length: Length
    result: dict[str, Any] | None = None

    def last(self, kind: str) -> int | None:
        """Return the run's last epoch or step of this call; None if the other limits it."""
        return self.begin[kind] + self.length.amount if self.length.kind == kind else None


class RunHistory:
    """The calls of `fit` of a run, in order, and the logs of the last call's epochs."""

    def __init__(self) -> None:
        """Begin without a call."""
        self.calls: list[FitCall] = []
        self.logs: dict[str, list[float]] = {}

    @property
    def call(self) -> FitCall:
        """The last call."""
        return self.calls[-1]

    def begin_call(self, length: Length, *, epoch: int, step: int) -> None:
        """Add a call that begins after so many epochs and steps."""
        self.logs = {}
        self.calls.append(FitCall({"epochs": epoch, "steps": step}, length))

    def continue_call(
        self, length: Length, state: LoopState, *, step: int, directory: str
    ) -> LoopState:
        """Continue the checkpoint's last call with a length that may have grown.

        Args:
            length: Of this program.
            state: Of the checkpoint.
            step: Of the checkpoint.
            directory: Folder of the checkpoints, for the error.

        Returns:
            The state; training is no longer stopped if there is something left to do.

        Raises:
            ValueError: The checkpoint is of a longer run.
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
        """Record how the last call ended."""
        self.calls[-1] = self.call._replace(result=result._asdict())

    def result(self, number: int) -> FitResult:
        """Return the result of a call that has ended, from 0."""
        return FitResult(**(self.calls[number].result or {}))

    def add_epoch(self, logs: Mapping[str, float]) -> None:
        """Add what an epoch logged."""
        for name, value in logs.items():
            self.logs.setdefault(name, []).append(float(value))

    def to_json(self) -> dict[str, Any]:
        """Return the calls and logs as a checkpoint holds them."""
        return {"calls": [call._asdict() for call in self.calls], "history": self.logs}

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Take back what `to_json` wrote."""
        self.logs = stored["history"]
        self.calls = [
            FitCall(call["begin"], Length(*call["length"]), call["result"])
            for call in stored["calls"]
        ]
