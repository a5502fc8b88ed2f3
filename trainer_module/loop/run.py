"""A running training: its state, how it is saved and restored, and what its workers decide.

Each worker knows only its own clock, callbacks and signals. Platforms send SIGTERM before they
reclaim a machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import signal
import threading
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any, Literal, NamedTuple

from absl import logging

from trainer_module.common.differences import summarize_differences
from trainer_module.common.tensors import Json
from trainer_module.data.epoch_data import EpochData
from trainer_module.devices.worker_group import WorkerGroup
from trainer_module.loop.callback import FitResult
from trainer_module.loop.callback_list import CallbackList
from trainer_module.loop.checkpoints import Checkpoints
from trainer_module.loop.run_fingerprint import Fingerprint, check_fingerprint
from trainer_module.options.run_options import LoopOptions
from trainer_module.step.reports import LoopReport, Step

_EXIT_PREEMPTED = 143  # 128 + SIGTERM, as after a kill by SIGTERM; but a checkpoint was saved


class Preempted(SystemExit):
    """Training stopped at a step boundary after SIGTERM and saved a checkpoint of that step.

    As a SystemExit it ends the process with exit code 143 and no traceback.
    """

    def __init__(self, message: str) -> None:
        """Create the exception with a message that says what was saved."""
        super().__init__(_EXIT_PREEMPTED)
        self.message = message

    def __str__(self) -> str:
        """Return the message."""
        return self.message


class _Decision(NamedTuple):
    """The common decision of all workers between two calls of the graph."""

    stop: bool  # whether a callback of any worker asked training to stop
    value: Any  # the chief's
    preempted: bool  # whether any worker received SIGTERM


class WorkerSync:
    """Make the workers of a training agree between two calls of the graph."""

    def __init__(self, workers: WorkerGroup) -> None:
        """Create the sync of a worker group."""
        self.workers = workers
        self.was_asked_to_end = False

    @contextlib.contextmanager
    def noting_sigterm(self) -> Iterator[None]:
        """Record SIGTERM in the block, in the main thread and without a handler of the program."""
        in_main = threading.current_thread() is threading.main_thread()
        if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            yield
            return

        def record(number: int, frame: FrameType | None) -> None:
            self.was_asked_to_end = True

        signal.signal(signal.SIGTERM, record)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self.was_asked_to_end:  # after the last step boundary
            signal.raise_signal(signal.SIGTERM)

    def decide(self, step: int, *, stop: bool, value: Any) -> _Decision:
        """Return what all workers do next."""
        answers = self.workers.gather(f"step {step}", [stop, value, self.was_asked_to_end])
        stops, values, asked = zip(*answers, strict=True)
        return _Decision(any(stops), values[0], any(asked))

    def exit_preempted(self, step: int, directory: str) -> None:
        """End the process after SIGTERM, once the checkpoint of `step` is complete.

        Raises:
            Preempted: Always.
        """
        self.workers.barrier("the checkpoint after SIGTERM")
        message = (
            f"SIGTERM: step {step} is saved in {directory}. Start the program again to continue "
            "from it."
        )
        logging.warning("%s", message)
        raise Preempted(message)


class Length(NamedTuple):
    """Length of training, as a number of epochs or of steps."""

    kind: Literal["epochs", "steps"]
    amount: int

    @classmethod
    def of(cls, options: LoopOptions) -> Length:
        """Return the length from the one option that is given."""
        if options.epochs is not None:
            return cls("epochs", options.epochs)
        assert options.steps is not None
        return cls("steps", options.steps)


@dataclasses.dataclass(frozen=True)
class _LoopState:
    """The state of a training between two calls of the graph; each change returns a new record."""

    length: Length
    first_step: int = 0  # steps that the model had taken when the training began
    epoch: int = 0  # completed epochs
    step_in_epoch: int = 0
    unevaluated_steps: int = 0
    epoch_loss: tuple[float, float] = (0.0, 0.0)  # Σ loss · Σ w and Σ w of the current epoch
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)  # last evaluation
    history: Mapping[str, list[float]] = dataclasses.field(default_factory=dict)
    stopped: str | None = None  # "epochs", "steps" or "early_stopping"; None while it runs

    def replace(self, **changes: object) -> _LoopState:
        """Return a copy with changed fields."""
        return dataclasses.replace(self, **changes)

    def last(self, kind: str) -> int | None:
        """Return the last epoch or step of the training; None if the other one limits it."""
        if self.length.kind != kind:
            return None
        return self.length.amount + (self.first_step if kind == "steps" else 0)

    def after_call(self, report: LoopReport) -> _LoopState:
        """Return the state after a call of the graph."""
        return self.replace(
            step_in_epoch=self.step_in_epoch + report.steps,
            unevaluated_steps=self.unevaluated_steps + report.steps,
            epoch_loss=report.loss_sums if report.steps else self.epoch_loss,
        )

    def after_epoch(self) -> _LoopState:
        """Return the state at the start of the next epoch."""
        return self.replace(epoch=self.epoch + 1, step_in_epoch=0, epoch_loss=(0.0, 0.0))

    def after_evaluation(
        self, metrics: Mapping[str, float], logs: Mapping[str, float]
    ) -> _LoopState:
        """Return the state with the metrics of an evaluation and the logs of its epoch."""
        history = {name: list(values) for name, values in self.history.items()}
        for name, value in logs.items():
            history.setdefault(name, []).append(float(value))
        return self.replace(metrics=metrics, history=history, unevaluated_steps=0)

    def continued(self, length: Length, *, step: int, directory: str) -> _LoopState:
        """Return the state of a checkpoint for a training of this length, which may be longer."""
        kind, amount = length
        state = self.replace(length=length)
        goal = state.last(kind)
        reached = step if kind == "steps" else self.epoch
        assert goal is not None
        if reached > goal or (kind == "epochs" and reached == goal and self.step_in_epoch):
            raise ValueError(
                f"{kind}={amount}, but the checkpoint in {directory} is of step {step}, epoch "
                f"{self.epochs_begun} of a longer run ({self.length.kind}={self.length.amount}): "
                "give at least as many, another folder, or delete it to start over."
            )
        if self.stopped == "early_stopping":
            logging.info("The run of the checkpoint has ended: it was stopped early")
        elif self.stopped is not None and reached < goal:
            logging.info("The run has grown to %s=%d: training continues", kind, amount)
            return state.replace(stopped=None)
        return state

    @property
    def epochs_begun(self) -> int:
        """Number of epochs with at least one step."""
        return self.epoch + bool(self.step_in_epoch)

    @property
    def mean_epoch_loss(self) -> float:
        """Mean loss of the current epoch; NaN if its weights sum to 0."""
        total, weights = self.epoch_loss
        return total / weights if weights else math.nan

    @classmethod
    def from_json(cls, stored: Mapping[str, Json]) -> _LoopState:
        """Return the state from its fields in a checkpoint."""
        values = {field.name: stored[field.name] for field in dataclasses.fields(cls)}
        pairs = {"length": Length(*values["length"]), "epoch_loss": tuple(values["epoch_loss"])}
        return cls(**{**values, **pairs})


class Run:
    """A running training: what takes steps, gives batches, is called, saves and agrees."""

    def __init__(
        self,
        train_step: Step,
        data: EpochData,
        callbacks: CallbackList,
        checkpoints: Checkpoints | None,
        sync: WorkerSync,
        length: Length,
    ) -> None:
        """Create a run before its first step."""
        self.train_step = train_step
        self.data = data
        self.callbacks = callbacks
        self.checkpoints = checkpoints
        self.sync = sync
        self.state = _LoopState(length)
        self.fingerprint: Fingerprint = {}

    @property
    def step(self) -> int:
        """Optimizer steps taken in total."""
        return int(self.train_step.step.numpy())

    @property
    def total_steps(self) -> int | None:
        """Total steps at the end of training; None if the number of rows is unknown."""
        done, last_epoch = self.state.step_in_epoch, self.state.last("epochs")
        if last_epoch is None:
            return self.state.last("steps")
        left = self.data.total_steps(last_epoch - self.state.epoch, done, self.step)
        return None if left is None else self.step - done + left

    def result(self) -> FitResult:
        """Return how the training ended."""
        assert self.state.stopped is not None
        return FitResult(
            stopped=self.state.stopped,
            steps=self.step,
            epochs=self.state.epochs_begun,
            metrics=dict(self.state.metrics),
            skipped=self.train_step.skipped,
            history={name: list(values) for name, values in self.state.history.items()},
        )

    def save(self, *, preempted: bool) -> None:
        """Save a checkpoint.

        Raises:
            Preempted: `preempted` is true; raised after saving.
        """
        checkpoints = self.checkpoints
        assert checkpoints is not None
        position = {
            **dataclasses.asdict(self.state),
            "steps": self.step,
            "skipped": self.train_step.skipped,
            "data": self.data.place,
            "facts": self.fingerprint,
            "callbacks": self.callbacks.states(),
        }
        checkpoints.save(position, self.step)
        if preempted:
            self.sync.exit_preempted(self.step, checkpoints.directory)

    def restore(self, program: Fingerprint) -> None:
        """Restore the latest checkpoint, if there is one."""
        checkpoints, length = self.checkpoints, self.state.length
        assert checkpoints is not None
        self.fingerprint = program
        grown: list[str] = []

        def check(position: Mapping[str, Json]) -> None:
            before = Length(*position["length"])
            longer = before.kind != length.kind or length.amount > before.amount
            grown[:] = check_fingerprint(
                position["facts"], self.fingerprint, path=checkpoints.directory, longer=longer
            )
            there = [name for name, _ in position["callbacks"]]
            here = self.callbacks.stateful_names()
            if there != here:
                raise ValueError(
                    f"the checkpoint is of a loop with the callbacks {there}, this one has {here}: "
                    "give the same, or another folder for checkpoints to start over."
                )

        position = checkpoints.restore(check)
        if position is None:
            return
        self.state = _LoopState.from_json(position).continued(
            length, step=self.step, directory=checkpoints.directory
        )
        self.data.restore(position["data"])
        self.callbacks.restore(position["callbacks"])
        if grown:
            logging.warning(
                "The learning-rate schedule grows with the run: %s. From step %d on it is the "
                "longer one; the steps before followed the shorter. Delete %s to train all of them "
                "by the longer one.",
                summarize_differences(grown),
                self.step,
                checkpoints.directory,
            )
        logging.info("Continuing at step %d, epoch %d", self.step, self.state.epoch + 1)

    def restart_hint(self) -> str:
        """Return a message that says where a restarted program would resume."""
        latest = None if self.checkpoints is None else self.checkpoints.latest
        if latest is None:
            return "there is no checkpoint, so that a new start trains from the beginning."
        return f"the last checkpoint is {latest}; start again, and training continues from it."
