"""Epochs of optimizer steps, with what happens between them; it knows no gradient."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from trainer_module.actions import Action, EpochEnd, FitResult, LoopProgress
from trainer_module.checkpoints import Checkpoints
from trainer_module.evaluation import Evaluate
from trainer_module.reports import LoopReport
from trainer_module.several_optimizers import learning_rate_of
from trainer_module.train_step import TrainStep

_SECONDS_PER_LOOP = 0.5
_MOST_STEPS_PER_LOOP = 10_000


class TrainingLoop:
    """Runs a `TrainStep` over epochs.

        for each epoch:
            for each call of the graph (steps_per_loop optimizer steps):
                actions.on_loop; a checkpoint when it is due
            evaluate; actions.on_epoch; a checkpoint when it is due, or at the end

    The last window of an epoch is as short as the rows that are left, and is an optimizer step like
    the others, divided by its own Σ w. After `fit` the model holds the weights to export: those of
    the best epoch if an action kept them, else the EMA if there is one, else the last.

    Example:
        loop = TrainingLoop(step, dataset.shuffle(1000).batch(256), epochs=10)
        result = loop.fit()
    """

    def __init__(
        self,
        train_step: TrainStep,
        batches: tf.data.Dataset | Callable[[int], tf.data.Dataset],
        *,
        epochs: int | None = None,
        steps: int | None = None,
        steps_per_epoch: int | None = None,
        steps_per_loop: int | str = "auto",
        evaluate: Evaluate | None = None,
        actions: Sequence[Action] = (),
        checkpoints: Checkpoints | None = None,
    ) -> None:
        """Checks the options.

        Args:
            train_step: Takes the steps.
            batches: Global batches of one epoch, or a function from the epoch's number (from 0) to
                them; the function must give the same batches when asked again, or a run that
                continues from a checkpoint sees others than one that was never stopped.
            epochs: Passes over `batches`; or give `steps`.
            steps: Optimizer steps; the batches are repeated until then.
            steps_per_epoch: Where known, for the time left; taken from the dataset if it knows.
            steps_per_loop: Optimizer steps per call of the graph; "auto" is about half a second's.
            evaluate: Returns metrics by name; called after each epoch, on averaged weights if the
                step keeps an EMA.
            actions: Called in order.
            checkpoints: Saved at ends of epochs and every so many steps, as they say, and when
                training ends.

        Raises:
            ValueError: Both or neither of epochs and steps, or a count below 1.
        """
        if (epochs is None) == (steps is None):
            raise ValueError(f"epochs={epochs} and steps={steps}: give exactly one of them.")
        for name, value in (
            ("epochs", epochs),
            ("steps", steps),
            ("steps_per_loop", steps_per_loop),
        ):
            if isinstance(value, int) and value < 1:
                raise ValueError(f"{name}={value}: use at least 1.")
        if isinstance(steps_per_loop, str) and steps_per_loop != "auto":
            raise ValueError(f'steps_per_loop={steps_per_loop!r}: use a number or "auto".')
        self.train_step = train_step
        self.batches: Callable[[int], Any] = batches if callable(batches) else lambda epoch: batches
        self.epochs = epochs
        self.steps = steps
        self.steps_per_epoch = steps_per_epoch
        self.steps_per_loop = steps_per_loop
        self.evaluate = evaluate
        self.actions = list(actions)
        self.checkpoints = checkpoints
        if checkpoints is not None:
            checkpoints.hold_actions([v for action in actions for v in action.variables()])
        self._epoch = 0
        self._step_in_epoch = 0
        self._epoch_loss = [0.0, 0.0]  # Σ loss · Σ w and Σ w of the windows of the epoch so far
        self._metrics: dict[str, float] = {}
        self._stopped: str | None = None
        self._loop_size = 1 if steps_per_loop == "auto" else int(steps_per_loop)

    def fit(self) -> FitResult:
        """Trains to the end, from the latest checkpoint if there is one.

        Raises:
            NonFiniteError: See `TrainStep`.
            ValueError: An epoch has no batch, or the checkpoint is of another model or of other
                actions.
        """
        if self.checkpoints is not None:
            self._restore(self.checkpoints.restore())
        while self._stopped is None:
            self._run_epoch()
        for action in self.actions:
            restored = action.before_export()
            if restored is not None:
                self._metrics = restored
                break
        else:
            self.train_step.use_averages()
        result = FitResult(
            stopped=self._stopped,
            steps=self._step,
            epochs=self._epoch,
            metrics=self._metrics,
            skipped=self.train_step.skipped,
        )
        for action in self.actions:
            action.on_end(result)
        return result

    @property
    def _step(self) -> int:
        return int(self.train_step.step.numpy())

    @property
    def _total_steps(self) -> int | None:
        if self.steps is not None:
            return self.steps
        if self.steps_per_epoch is None or self.epochs is None:
            return None
        return self.epochs * self.steps_per_epoch

    def _run_epoch(self) -> None:
        dataset = self.batches(self._epoch)
        if self.steps_per_epoch is None:
            known = int(dataset.cardinality())
            self.steps_per_epoch = known if known >= 0 else None
        iterator = iter(dataset.skip(self._step_in_epoch) if self._step_in_epoch else dataset)
        while True:
            wanted = self._steps_of_next_loop()
            if wanted == 0:
                break
            report = self._run_loop(iterator, wanted)
            if report.exhausted:
                break
        if self._step_in_epoch == 0:
            raise ValueError("the training data has no batch: check the split and its files.")
        self._end_epoch()

    def _steps_of_next_loop(self) -> int:
        """Returns how many steps to take before something else is due; 0 ends the epoch."""
        wanted = self._loop_size
        if self.steps is not None:
            wanted = min(wanted, self.steps - self._step)
        if self.steps_per_epoch is not None:
            wanted = min(wanted, self.steps_per_epoch - self._step_in_epoch)
        every = self.checkpoints.every_steps if self.checkpoints is not None else None
        if every is not None:
            wanted = min(wanted, every - self._step % every)
        return max(0, wanted)

    def _run_loop(self, iterator: Any, wanted: int) -> LoopReport:
        started = time.monotonic()
        report = self.train_step.run(iterator, wanted, loss_sums=self._epoch_loss)
        seconds = time.monotonic() - started
        self._step_in_epoch += report.steps
        if self.steps_per_loop == "auto" and report.steps:
            fitting = _SECONDS_PER_LOOP * report.steps / max(seconds, 1e-9)
            # At most ten times as many: the first call's time is mostly tracing.
            self._loop_size = int(max(1, min(fitting, 10 * self._loop_size, _MOST_STEPS_PER_LOOP)))
        if report.steps:
            self._epoch_loss = list(report.loss_sums)
            self._tell(report, seconds)
            every = self.checkpoints.every_steps if self.checkpoints is not None else None
            if every is not None and self._step % every == 0:
                self._save()
        return report

    def _tell(self, report: LoopReport, seconds: float) -> None:
        progress = LoopProgress(
            step=self._step,
            steps=report.steps,
            total_steps=self._total_steps,
            epoch=self._epoch + 1,
            epochs=self.epochs,
            loss=report.loss,
            gradient_norm=report.gradient_norm,
            learning_rate=learning_rate_of(self.train_step.optimizer),
            rows=report.rows,
            seconds=seconds,
        )
        for action in self.actions:
            action.on_loop(progress)

    def _end_epoch(self) -> None:
        self._epoch += 1
        total, weights = self._epoch_loss
        loss = total / weights if weights else math.nan
        self._step_in_epoch, self._epoch_loss = 0, [0.0, 0.0]
        stop = False
        with self.train_step.averaged():
            self._metrics = self.evaluate() if self.evaluate is not None else {}
            end = EpochEnd(self._step, self._epoch, loss, self._metrics)
            for action in self.actions:
                stop = action.on_epoch(end) or stop
        if self.steps is not None and self._step >= self.steps:
            self._stopped = "steps"
        elif self.epochs is not None and self._epoch >= self.epochs:
            self._stopped = "epochs"
        elif stop:
            self._stopped = "early_stopping"
        if self.checkpoints is not None and (self._stopped is not None or self.checkpoints.due()):
            self._save()

    def _save(self) -> None:
        assert self.checkpoints is not None
        position = {
            "epoch": self._epoch,
            "step_in_epoch": self._step_in_epoch,
            "epoch_loss": self._epoch_loss,
            "metrics": self._metrics,
            "stopped": self._stopped,
            "actions": [[name, action.state()] for name, action in self._remembering()],
        }
        self.checkpoints.save(position, self._step)

    def _remembering(self) -> list[tuple[str, Action]]:
        """Returns the actions that have a state, by their class; others may come and go."""
        return [
            (type(action).__name__, action)
            for action in self.actions
            if type(action).state is not Action.state
        ]

    def _restore(self, position: dict[str, Any] | None) -> None:
        if position is None:
            return
        self._epoch = position["epoch"]
        self._step_in_epoch = position["step_in_epoch"]
        self._epoch_loss = position["epoch_loss"]
        self._metrics = position["metrics"]
        self._stopped = position["stopped"]
        ours = self._remembering()
        there, here = [name for name, _ in position["actions"]], [name for name, _ in ours]
        if there != here:
            raise ValueError(
                f"the checkpoint is of a loop with the actions {there}, this one has {here}: give "
                "the same, or another folder for checkpoints to start over."
            )
        for (_, action), (_, state) in zip(ours, position["actions"], strict=True):
            action.restore(state)
        logging.info("Continuing at step %d, epoch %d", self._step, self._epoch + 1)
