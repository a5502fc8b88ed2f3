"""Record the calls of `fit` of a run and the logs of each epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from absl import logging

from trainer_module.common.json_values import Json
from trainer_module.common.positive_int import check_positive_int
from trainer_module.loop.callbacks import FitResult
from trainer_module.loop.loop_state import LoopState


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


class FitCall(NamedTuple):
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
        self.calls: list[FitCall] = []
        self.logs: dict[str, list[float]] = {}

    @property
    def call(self) -> FitCall:
        """The last call."""
        return self.calls[-1]

    def begin_call(self, length: Length, *, epoch: int, step: int) -> None:
        """Add a call that begins at this epoch and step."""
        self.logs = {}
        self.calls.append(FitCall({"epochs": epoch, "steps": step}, length))

    def continue_call(
        self, length: Length, state: LoopState, *, step: int, directory: str
    ) -> LoopState:
        """Continue the checkpoint's last call, possibly with a longer length.

        Args:
            length: Length that this program asks for.
            state: State in the checkpoint.
            step: Step of the checkpoint.
            directory: Folder of the checkpoints, for the error message.

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
            FitCall(call["begin"], Length(*call["length"]), call["result"])
            for call in stored["calls"]
        ]
