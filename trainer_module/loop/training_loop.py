"""Epochs of optimizer steps, with what happens between them; it knows no gradient."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from typing import Any

import keras
from absl import logging

from trainer_module.common.differences import summarize_differences
from trainer_module.common.positive_int import check_positive_int
from trainer_module.common.several_optimizers import learning_rate_of
from trainer_module.data.epoch_data import EpochData, as_batches
from trainer_module.devices.multi_worker import worker_group
from trainer_module.loop.callbacks import (
    Callback,
    EpochEnd,
    FitResult,
    KerasCallback,
    LoopProgress,
    ProgressLog,
)
from trainer_module.loop.checkpoints import Checkpoints
from trainer_module.loop.evaluation import Evaluate, Evaluation
from trainer_module.loop.loop_facts import check_facts, loop_facts, read_captured_facts
from trainer_module.loop.preemption import Preempted, Preemption
from trainer_module.parameter_server.parameter_server_step import ServerLost
from trainer_module.step.protocol import Step
from trainer_module.step.reports import LoopReport

_SECONDS_PER_LOOP = 0.5
_MOST_STEPS_PER_LOOP = 10_000


class TrainingLoop:
    """Runs a `TrainStep` over epochs.

        for each epoch:
            for each call of the graph (steps_per_loop optimizer steps):
                callbacks.on_loop; a checkpoint when it is due by steps or by time
            evaluate; callbacks.on_epoch; a checkpoint when it is due, or at the end

    The last window of an epoch is as short as the rows that are left, and is an optimizer step like
    the others, divided by its own Σ w. After `fit` the model holds the weights to export: those of
    the best epoch if a callback kept them, else the EMA if there is one, else the last.

    Example:
        loop = TrainingLoop(step, dataset.shuffle(1000, seed=0).batch(256), epochs=10)
        result = loop.fit()
        plt.plot(result.history["loss"])
    """

    def __init__(
        self,
        train_step: Step,
        batches: Any,
        *,
        epochs: int | None = None,
        steps: int | None = None,
        batch_size: int | None = None,
        shuffle: bool | None = None,
        seed: int | None = None,
        steps_per_epoch: int | None = None,
        steps_per_loop: int | str = "auto",
        evaluate: Evaluate | None = None,
        callbacks: Sequence[Callback | keras.callbacks.Callback] = (),
        actions: Sequence[Callback | keras.callbacks.Callback] = (),
        checkpoints: Checkpoints | None = None,
        progress: bool = True,
    ) -> None:
        """Checks the options.

        Args:
            train_step: Takes the steps.
            batches: Global batches of one epoch: a tf.data.Dataset, or a function from the epoch's
                number (from 0) to one, which must give the same batches when asked again, or a
                list of tuples (features, labels[, weights]). Or the rows: such a tuple of arrays
                or lists, which needs `batch_size`. With checkpoints a dataset may shuffle anew for
                each epoch if it has a seed.
            epochs: Passes over `batches`, of each `fit`; or give `steps`.
            steps: Optimizer steps, of each `fit`; the batches are repeated until then.
            batch_size: Rows of a global batch, where `batches` are arrays.
            shuffle: Whether arrays are put into another order for each epoch; True by default.
            seed: Of these orders; 0 by default.
            steps_per_epoch: Most optimizer steps of an epoch, as in `keras.Model.fit`: each epoch
                takes the next batches of the same pass over the data. An epoch that reaches the
                end of the data is shorter, which a warning says, and the next one starts the data
                from its beginning. Needed for a dataset without end. A function of the epoch gives
                each epoch its own data, of which these are the first batches.
            steps_per_loop: Optimizer steps per call of the graph; "auto" is about half a second's.
            evaluate: Returns metrics by name; called after each epoch, on averaged weights if the
                step keeps an EMA.
            callbacks: Called in order; callbacks of Keras too (see `KerasCallback`).
            actions: The former name of `callbacks`.
            checkpoints: Saved at ends of epochs and every so many steps or minutes, as they say,
                and when training ends.
            progress: Show how it goes, by a `ProgressLog` where `callbacks` have none.

        Raises:
            ValueError: Both or neither of epochs and steps, a count below 1, data that is none, or
                whose order no checkpoint could find again, or a callback that has no place here.
        """
        self._length = _length(epochs, steps)
        if isinstance(steps_per_loop, str) and steps_per_loop != "auto":
            raise ValueError(f'steps_per_loop={steps_per_loop!r}: use a number or "auto".')
        for name, value in (
            ("steps_per_loop", steps_per_loop),
            ("steps_per_epoch", steps_per_epoch),
        ):
            if value is not None and value != "auto":
                check_positive_int(name, value)
        self.train_step = train_step
        self._workers = worker_group(train_step.strategy)
        self._preemption = Preemption()
        self.batches = as_batches(batches, batch_size=batch_size, shuffle=shuffle, seed=seed)
        self._data_options = {"batch_size": batch_size, "shuffle": shuffle, "seed": seed}
        self._data_given = batches
        self.steps_per_epoch = steps_per_epoch
        self.steps_per_loop = steps_per_loop
        self.evaluate = evaluate
        self.checkpoints = checkpoints
        if actions and callbacks:
            raise ValueError("callbacks and actions are both given: actions is the former name.")
        self.callbacks = self._as_callbacks(callbacks or actions, progress=progress)
        self._called = [a for a in self.callbacks if self._workers.is_chief or not a.on_chief_only]
        if checkpoints is not None:
            checkpoints.hold_callbacks(
                [v for callback in self.callbacks for v in callback.variables()]
            )
        self._data = EpochData(
            self.batches,
            steps_per_epoch=steps_per_epoch,
            must_resume=checkpoints is not None or self._workers.size > 1,
            needs_end=epochs is not None,
            by_epoch=callable(batches),
        )
        self._fits = 0
        self._calls: list[dict[str, Any]] = []
        self._own: dict[str, Any] = {}
        self._facts: dict[str, Any] = {}
        self._last_weights: list[Any] | None = None
        self._iterator: Any = None
        self._epoch = 0
        self._step_in_epoch = 0
        self._steps_untold = 0
        self._epoch_loss = [0.0, 0.0]  # Σ loss · Σ w and Σ w of the windows of the epoch so far
        self._metrics: dict[str, float] = {}
        self._history: dict[str, list[float]] = {}
        self._stopped: str | None = None
        self._loop_size = 1 if steps_per_loop == "auto" else int(steps_per_loop)

    def fit(self, *, epochs: int | None = None, steps: int | None = None) -> FitResult:
        """Trains, from the latest checkpoint if there is one; called again, it trains on.

        Each call takes as many epochs, or steps, as the constructor was told, or as it is told
        itself, beginning where the one before ended. A program that was killed does the same calls
        again: those that were over are not repeated, the one under way continues.

        A call that was over is trained on where its length has grown since: from the end of its
        checkpoint, as if it had been longer from the beginning.

        Args:
            epochs: In place of the constructor's length.
            steps: As well.

        Raises:
            NonFiniteError: See `TrainStep`.
            Preempted: SIGTERM came, here or on another worker, and a checkpoint was saved; a
                SystemExit with code 143. Without checkpoints the signal ends the process.
            ValueError: An epoch has no batch, or the checkpoint is of another run: what differs is
                named.
            Disagreement: Workers differ in model, data or options.
            WorkerLost: One of several workers has gone.
        """
        given = epochs is not None or steps is not None
        length = _length(epochs, steps) if given else self._length
        number = self._fits
        if number == 0 or number == len(self._calls):
            for callback in self._called:
                callback.on_begin()
        if (
            number == 0
            and not self._own
            and (self._workers.size > 1 or self.checkpoints is not None)
        ):
            self._own = self._own_facts()
        if number == 0 and self._workers.size > 1:
            self._workers.assert_same_on_all_workers("program", self._own)
        if number == 0 and self.checkpoints is not None:
            self._restore(self.checkpoints, length)
        if number < len(self._calls) - 1:
            logging.info("Call %d of fit is over: the checkpoint is of a later one", number + 1)
            self._fits += 1
            return FitResult(**self._calls[number]["result"])
        if number == len(self._calls):
            self._begin_call(length)
        else:
            self._continue_call(length)
        with self._preemption if self.checkpoints is not None else contextlib.nullcontext():
            while self._stopped is None:
                self._run_epoch()
        self._fits += 1
        return self._finish()

    def _as_callbacks(self, callbacks: Sequence[Any], *, progress: bool) -> list[Callback]:
        metrics = None
        if self.evaluate is None:
            metrics = []
        elif isinstance(self.evaluate, Evaluation):
            metrics = ["loss", *(metric.name for metric in self.evaluate.metrics)]
        kind, amount = self._length
        found: list[Callback] = []
        for callback in callbacks:
            if isinstance(callback, keras.callbacks.Callback):
                callback = KerasCallback(
                    callback,
                    self.train_step,
                    metrics=metrics,
                    epochs=amount if kind == "epochs" else None,
                )
            if not isinstance(callback, Callback):
                raise ValueError(
                    f"callbacks: {type(callback).__name__} is neither a Callback of this loop nor "
                    "one of Keras."
                )
            found.append(callback)
        if progress and not any(isinstance(callback, ProgressLog) for callback in found):
            found.append(ProgressLog())
        return found

    def _begin_call(self, length: tuple[str, int]) -> None:
        if self._last_weights is not None:
            for variable, value in zip(
                self.train_step.model.variables, self._last_weights, strict=True
            ):
                variable.value.assign(value)
        self._stopped, self._history = None, {}
        begin = {"epochs": self._epoch, "steps": self._step}
        self._calls.append({"begin": begin, "length": list(length), "result": None})

    def _continue_call(self, length: tuple[str, int]) -> None:
        """Goes on with the checkpoint's last call, or ends it where nothing is left to do."""
        call = self._calls[-1]
        kind, amount = length
        goal = call["begin"][kind] + amount
        reached = self._step if kind == "steps" else self._epoch
        if reached > goal or (kind == "epochs" and reached == goal and self._step_in_epoch):
            folder = self.checkpoints.directory if self.checkpoints is not None else ""
            raise ValueError(
                f"{kind}={amount}, but the checkpoint in {folder} is of step "
                f"{self._step}, epoch {self._epoch + bool(self._step_in_epoch)} of a longer run "
                f"({call['length'][0]}={call['length'][1]}): give at least as many, another "
                "folder, or delete it to start over."
            )
        call["length"] = list(length)
        if self._stopped == "early_stopping":
            logging.info("The checkpoint's run is over: it was stopped early")
        elif self._stopped is not None and reached < goal:
            logging.info("The run has grown to %s=%d: training on", kind, amount)
            self._stopped, call["result"] = None, None

    def _finish(self) -> FitResult:
        changed = bool(self.train_step.averages) or any(
            type(callback).before_export is not Callback.before_export
            for callback in self.callbacks
        )
        if changed:
            self._last_weights = [v.numpy() for v in self.train_step.model.variables]
        for callback in self._called:
            restored = callback.before_export()
            if restored is not None:
                self._metrics = restored
                break
        else:
            self.train_step.use_averages()
        assert self._stopped is not None
        result = self._result(self._stopped)
        self._calls[-1]["result"] = result._asdict()
        for callback in self._called:
            callback.on_end(result)
        return result

    def _result(self, stopped: str) -> FitResult:
        return FitResult(
            stopped=stopped,
            steps=self._step,
            epochs=self._epoch + bool(self._step_in_epoch),
            metrics=self._metrics,
            skipped=self.train_step.skipped,
            history={name: list(values) for name, values in self._history.items()},
        )

    @property
    def _step(self) -> int:
        return int(self.train_step.step.numpy())

    @property
    def _epochs(self) -> int | None:
        """The last epoch of this call of `fit`, counted from the first of all."""
        call = self._calls[-1]
        kind, amount = call["length"]
        return call["begin"]["epochs"] + amount if kind == "epochs" else None

    @property
    def _steps(self) -> int | None:
        """The last step of this call of `fit`."""
        call = self._calls[-1]
        kind, amount = call["length"]
        return call["begin"]["steps"] + amount if kind == "steps" else None

    @property
    def _total_steps(self) -> int | None:
        if self._steps is not None or self._epochs is None:
            return self._steps
        left = self._data.total_steps(self._epochs - self._epoch, self._step_in_epoch)
        return None if left is None else self._step - self._step_in_epoch + left

    def _run_epoch(self) -> None:
        if self._iterator is None:
            self._iterator = self._data.begin(self._epoch, self._step_in_epoch)
            if self._step_in_epoch == 0:
                for callback in self._called:
                    callback.on_epoch_begin(self._epoch + 1)
        stop, exhausted = False, False
        while not (stop or exhausted) and (wanted := self._steps_of_next_loop()):
            try:
                report, stop = self._run_loop(self._iterator, wanted)
            except BaseException as error:
                self._iterator = None  # it may have given batches that were not trained on
                self._data.forget_iterator()
                if isinstance(error, ServerLost):
                    raise ServerLost(f"{error}: {self._what_is_kept()}") from error
                raise
            exhausted = report.exhausted
            # The epoch before ended where the data did, which only shows when more is asked for.
            if exhausted and self._step_in_epoch == 0 and self._data.start_next_pass():
                self._iterator, exhausted = self._data.begin(self._epoch, 0), False
        if self._step_in_epoch == 0:
            raise ValueError("the training data has no batch: check the split and its files.")
        ended = exhausted or self._step_in_epoch >= (self._data.steps or math.inf)
        if ended:
            self._data.end(self._epoch, self._step_in_epoch, exhausted=exhausted)
        self._end_epoch(whole=ended, stop=stop)

    def _what_is_kept(self) -> str:
        latest = None if self.checkpoints is None else self.checkpoints.latest
        if latest is None:
            return "there is no checkpoint, so that a new start trains from the beginning."
        return f"the last checkpoint is {latest}; start again, and training continues from it."

    def _steps_of_next_loop(self) -> int:
        """Returns how many steps to take before something else is due; 0 ends the epoch."""
        wanted = self._loop_size
        if self._steps is not None:
            wanted = min(wanted, self._steps - self._step)
        if self._data.steps is not None:
            wanted = min(wanted, self._data.steps - self._step_in_epoch)
        every = self.checkpoints.every_steps if self.checkpoints is not None else None
        if every is not None:
            wanted = min(wanted, every - self._step % every)
        return max(0, wanted)

    def _run_loop(self, iterator: Any, wanted: int) -> tuple[LoopReport, bool]:
        for callback in self._called:
            callback.on_loop_begin()
        started = time.monotonic()
        report = self.train_step.run(iterator, wanted, loss_sums=self._epoch_loss)
        seconds = time.monotonic() - started
        self._step_in_epoch += report.steps
        self._data.took(report.steps)
        self._steps_untold += report.steps
        stop = False
        if self.steps_per_loop == "auto" and report.steps:
            fitting = _SECONDS_PER_LOOP * report.steps / max(seconds, 1e-9)
            # At most ten times as many: the first call's time is mostly tracing.
            self._loop_size = int(max(1, min(fitting, 10 * self._loop_size, _MOST_STEPS_PER_LOOP)))
        if report.steps:
            self._epoch_loss = list(report.loss_sums)
            stop = self._tell(report, seconds)
        overdue = self.checkpoints is not None and self.checkpoints.is_overdue()
        stop, (self._loop_size, overdue), preempted = self._agreed(stop, [self._loop_size, overdue])
        every = self.checkpoints.every_steps if self.checkpoints is not None else None
        due = report.steps > 0 and every is not None and self._step % every == 0
        if report.exhausted or stop or not self._steps_of_next_loop():
            # The epoch ends and is evaluated first: the checkpoint of its end holds that.
            overdue = preempted = False
        if due or overdue or preempted:
            self._save()
        if preempted:
            self._leave()
        return report, stop

    def _agreed(self, stop: bool, amount: Any) -> tuple[bool, Any, bool]:
        """Returns what all workers do next: what one measures, or is asked, the others do not know.

        Args:
            stop: Whether a callback here stops training; where one does, all stop.
            amount: Of this worker; the chief's counts.

        Returns:
            Both, and whether SIGTERM has come to a worker.
        """
        told = self._workers.gather(f"step {self._step}", [stop, amount, self._preemption.asked])
        stops, amounts, asked = zip(*told, strict=True)
        return any(stops), amounts[0], any(asked)

    def _leave(self) -> None:
        """Ends the process after SIGTERM, once the checkpoint is whole."""
        assert self.checkpoints is not None
        self._workers.barrier("the checkpoint after SIGTERM")
        words = (
            f"SIGTERM: step {self._step} is saved in {self.checkpoints.directory}; started again, "
            "training goes on there"
        )
        logging.warning("%s", words)
        raise Preempted(words)

    def _tell(self, report: LoopReport, seconds: float) -> bool:
        progress = LoopProgress(
            step=self._step,
            steps=report.steps,
            total_steps=self._total_steps,
            epoch=self._epoch + 1,
            epochs=self._epochs,
            loss=report.loss,
            gradient_norm=report.gradient_norm,
            learning_rate=learning_rate_of(self.train_step.optimizer),
            rows=report.rows,
            seconds=seconds,
        )
        stop = [callback.on_loop(progress) for callback in self._called]
        return any(stop)

    def _end_epoch(self, *, whole: bool, stop: bool) -> None:
        """Evaluates and calls the callbacks; an unfinished epoch continues if training does."""
        number = self._epoch + 1
        total, weights = self._epoch_loss
        loss = total / weights if weights else math.nan
        if whole:
            self._epoch, self._step_in_epoch, self._epoch_loss = number, 0, [0.0, 0.0]
            self._iterator = None
        if self._steps_untold:
            stop = self._tell_epoch(number, loss) or stop
        due = self.checkpoints is not None and self.checkpoints.due()
        stop, due, preempted = self._agreed(stop, due)
        if self._steps is not None and self._step >= self._steps:
            self._stopped = "steps"
        elif self._epochs is not None and self._epoch >= self._epochs:
            self._stopped = "epochs"
        elif stop:
            self._stopped = "early_stopping"
        if self.checkpoints is not None and (self._stopped is not None or due or preempted):
            self._save()
            if preempted:
                self._leave()

    def _tell_epoch(self, number: int, loss: float) -> bool:
        self._steps_untold = 0
        stop = False
        with self.train_step.averaged():
            found = self.evaluate() if self.evaluate is not None else {}
            self._metrics = self._workers.broadcast_from_chief("evaluation", found)
            logs = {"loss": loss, **{f"val_{name}": v for name, v in self._metrics.items()}}
            end = EpochEnd(self._step, number, loss, self._metrics, logs)
            for callback in self._called:
                stop = callback.on_epoch(end) or stop
        for name, value in logs.items():
            self._history.setdefault(name, []).append(float(value))
        return stop

    def _save(self) -> None:
        assert self.checkpoints is not None
        if self._stopped is not None:
            self._calls[-1]["result"] = self._result(self._stopped)._asdict()
        position = {
            "epoch": self._epoch,
            "step_in_epoch": self._step_in_epoch,
            "data": self._data.place,
            "steps_untold": self._steps_untold,
            "epoch_loss": self._epoch_loss,
            "metrics": self._metrics,
            "history": self._history,
            "calls": self._calls,
            "stopped": self._stopped,
            "facts": self._facts,
            "actions": [[name, callback.state()] for name, callback in self._remembering()],
        }
        self.checkpoints.save(position, self._step)

    def _remembering(self) -> list[tuple[str, Callback]]:
        """Returns the callbacks that have a state, by their class; others may come and go."""
        return [
            (type(callback).__name__, callback)
            for callback in self.callbacks
            if type(callback).state is not Callback.state
        ]

    def _own_facts(self) -> dict[str, Any]:
        given, options = self._data_given, self._data_options
        facts = loop_facts(self.train_step, given, options, self.evaluate, self.callbacks)
        captured = read_captured_facts(self.train_step, given, self.evaluate, self._data.first_pass)
        return {**facts, **captured, "steps_per_epoch": self.steps_per_epoch}

    def _restore(self, checkpoints: Checkpoints, length: tuple[str, int]) -> None:
        follows: list[str] = []
        if not self._facts:
            self._facts = {**self._own, **checkpoints.facts}

        def check(position: dict[str, Any]) -> None:
            kind, amount = position["calls"][-1]["length"]
            longer = kind != length[0] or length[1] > amount
            follows[:] = check_facts(
                position["facts"], self._facts, path=checkpoints.directory, longer=longer
            )
            there = [name for name, _ in position["actions"]]
            here = [name for name, _ in self._remembering()]
            if there != here:
                raise ValueError(
                    f"the checkpoint is of a loop with the callbacks {there}, this one has {here}: "
                    "give the same, or another folder for checkpoints to start over."
                )

        position = checkpoints.restore(check)
        if position is None:
            return
        self._iterator = None
        self._epoch = position["epoch"]
        self._step_in_epoch = position["step_in_epoch"]
        self._data.restore(
            position.get("data"),
            epoch=self._epoch,
            step_in_epoch=self._step_in_epoch,
            step=self._step,
        )
        self._steps_untold = position["steps_untold"]
        self._epoch_loss = position["epoch_loss"]
        self._metrics = position["metrics"]
        self._history = position["history"]
        self._calls = position["calls"]
        self._stopped = position["stopped"]
        for (_, callback), (_, state) in zip(self._remembering(), position["actions"], strict=True):
            callback.restore(state)
        if follows:
            logging.warning(
                "The learning rate's schedule grows with the run: %s. From step %d on it is the "
                "longer one; the steps before followed the shorter. Delete %s to train all of them "
                "by the longer one.",
                summarize_differences(follows),
                self._step,
                checkpoints.directory,
            )
        logging.info("Continuing at step %d, epoch %d", self._step, self._epoch + 1)


def _length(epochs: Any, steps: Any) -> tuple[str, int]:
    if (epochs is None) == (steps is None):
        raise ValueError(f"epochs={epochs} and steps={steps}: give exactly one of them.")
    kind, value = ("epochs", epochs) if steps is None else ("steps", steps)
    return kind, check_positive_int(kind, value)
