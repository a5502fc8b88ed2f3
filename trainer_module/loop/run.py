"""A running training: its parts, its state, and how the state is saved and restored."""

from __future__ import annotations

from collections.abc import Mapping

from absl import logging

from trainer_module.common.differences import summarize_differences
from trainer_module.common.tensors import Json
from trainer_module.data.epoch_data import EpochData
from trainer_module.loop.callback import FitResult
from trainer_module.loop.callback_list import CallbackList
from trainer_module.loop.checkpoints import Checkpoints
from trainer_module.loop.run_fingerprint import Fingerprint, check_fingerprint
from trainer_module.loop.run_state import Length, LoopState, RunHistory
from trainer_module.loop.worker_sync import WorkerSync
from trainer_module.step.reports import Step


class Run:
    """A running training: what takes steps, gives batches, is called, saves and agrees."""

    def __init__(
        self,
        train_step: Step,
        data: EpochData,
        callbacks: CallbackList,
        checkpoints: Checkpoints | None,
        sync: WorkerSync,
    ) -> None:
        """Create a run before its first step."""
        self.train_step = train_step
        self.data = data
        self.callbacks = callbacks
        self.checkpoints = checkpoints
        self.sync = sync
        self.state = LoopState()
        self.history = RunHistory()
        self.fingerprint: Fingerprint = {}

    @property
    def step(self) -> int:
        """Optimizer steps taken in total."""
        return int(self.train_step.step.numpy())

    @property
    def total_steps(self) -> int | None:
        """Total steps at the end of this call of `fit`; None if the number of rows is unknown."""
        call, done = self.history.call, self.state.step_in_epoch
        last_epoch = call.last("epochs")
        if last_epoch is None:
            return call.last("steps")
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
            history={name: list(values) for name, values in self.history.logs.items()},
        )

    def save(self, *, preempted: bool) -> None:
        """Save a checkpoint.

        Raises:
            Preempted: `preempted` is true; raised after saving.
        """
        checkpoints = self.checkpoints
        assert checkpoints is not None
        if self.state.stopped is not None:
            self.history.set_result(self.result())
        position = {
            **self.state.to_json(),
            **self.history.to_json(),
            "data": self.data.place,
            "facts": self.fingerprint,
            "callbacks": self.callbacks.states(),
        }
        checkpoints.save(position, self.step)
        if preempted:
            self.sync.exit_preempted(self.step, checkpoints.directory)

    def restore(self, program: Fingerprint, length: Length) -> None:
        """Restore the latest checkpoint, if there is one.

        Raises:
            ValueError: The checkpoint is from another run.
        """
        checkpoints = self.checkpoints
        assert checkpoints is not None
        if not self.fingerprint:
            self.fingerprint = {**program, **checkpoints.facts}
        grown: list[str] = []

        def check(position: Mapping[str, Json]) -> None:
            before = Length(*position["calls"][-1]["length"])
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
        self.state = LoopState.from_json(position)
        self.history.restore(position)
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
