"""Run epochs of optimizer steps, with evaluation, callbacks and checkpoints between them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from absl import logging

from trainer_module.common.keras_arguments import naming_replacements
from trainer_module.data.epoch_data import BatchSource, EpochData, as_batches
from trainer_module.devices.main_thread import doing
from trainer_module.devices.multi_worker import worker_group
from trainer_module.loop.callback import FitResult
from trainer_module.loop.callback_list import AnyCallback, CallbackList, as_callbacks
from trainer_module.loop.checkpoints import Checkpoints
from trainer_module.loop.epoch_runner import EpochRunner
from trainer_module.loop.evaluation import Evaluate, Evaluation
from trainer_module.loop.run import Run
from trainer_module.loop.run_fingerprint import Fingerprint, program_fingerprint
from trainer_module.loop.run_state import Length
from trainer_module.loop.worker_sync import WorkerSync
from trainer_module.options.loop_options import LoopOptions
from trainer_module.options.settings import parse_section
from trainer_module.step.reports import Step


class TrainingLoop:
    """Run a `TrainStep` over epochs.

        for each epoch:
            for each call of the graph (steps_per_loop optimizer steps):
                callbacks.on_loop; a checkpoint when it is due by steps or by time
            evaluate; callbacks.on_epoch; a checkpoint when it is due, or at the end

    The last window of an epoch holds the remaining rows. It is an optimizer step like the others,
    divided by its own Σ w. After `fit` the model has the weights to export: those of the best epoch
    if a callback kept them, otherwise the EMA if there is one, otherwise the last weights.

    Example:
        loop = TrainingLoop(step, dataset.shuffle(1000, seed=0).batch(256), epochs=10)
        result = loop.fit()
        plt.plot(result.history["loss"])
    """

    @naming_replacements()
    def __init__(
        self,
        train_step: Step,
        batches: BatchSource,
        *,
        epochs: int | None = None,
        steps: int | None = None,
        batch_size: int | Mapping[int, int] | None = None,
        shuffle: bool | None = None,
        seed: int | None = None,
        steps_per_epoch: int | None = None,
        steps_per_loop: int | Literal["auto"] = "auto",
        evaluate: Evaluate | None = None,
        callbacks: Sequence[AnyCallback] | AnyCallback = (),
        checkpoints: Checkpoints | None = None,
        progress: bool = True,
    ) -> None:
        """Check the options and the data.

        Args:
            train_step: Takes the optimizer steps.
            batches: Global batches of one epoch: a tf.data.Dataset, a function from the epoch's
                number (from 0) to a dataset, or a list of tuples (features, labels[, weights]). The
                function must return the same batches when called again with the same number. Or the
                rows: such a tuple of arrays or lists, which needs `batch_size`. With checkpoints, a
                dataset that reshuffles at each epoch needs a seed.
            epochs: Passes over `batches` per call of `fit`. Give either `epochs` or `steps`.
            steps: Optimizer steps per call of `fit`; the batches are repeated as needed.
            batch_size: Rows of a global batch, if `batches` are arrays; or sizes by the optimizer
                step from which they hold: {0: 256, 1000: 1024}. See `ScaledLearningRate`.
            shuffle: Whether to shuffle arrays for each epoch; default True.
            seed: Seed of that shuffle; default 0.
            steps_per_epoch: Most optimizer steps of an epoch, as in `keras.Model.fit`: each epoch
                takes the next batches of the same pass over the data. An epoch that reaches the end
                of the data is shorter, with a warning, and the next one starts the data from its
                beginning. Required for an infinite dataset. If `batches` is a function of the
                epoch, each epoch takes the first batches of its dataset.
            steps_per_loop: Optimizer steps per call of the graph; "auto": about half a second of
                steps.
            evaluate: Returns metrics by name. Called after each epoch, on the averaged weights if
                the step keeps an EMA.
            callbacks: One or several, called in order. Keras callbacks are allowed (see
                `KerasCallback`).
            checkpoints: Saved at the ends of epochs, after the set number of steps or minutes, and
                when training ends.
            progress: Whether to show the progress, with a `ProgressLog` if `callbacks` have none.

        Raises:
            ValueError: Both or neither of `epochs` and `steps` are given, a count is below 1,
                `batches` has an unsupported type, a checkpoint could not restore the order of the
                data, or a callback cannot work in this loop.
        """
        given = {
            "epochs": epochs,
            "steps": steps,
            "batch_size": batch_size,
            "shuffle": shuffle,
            "seed": seed,
            "steps_per_epoch": steps_per_epoch,
            "steps_per_loop": steps_per_loop,
        }
        self.options = parse_section(LoopOptions, given, section="")
        if evaluate is not None and not callable(evaluate):
            raise ValueError(
                f"evaluate is a {type(evaluate).__name__}: give Evaluation(model, loss, data), or "
                "a function that returns metrics by name."
            )
        self.train_step = train_step
        self.evaluate = evaluate
        self.batches = as_batches(
            batches, batch_size=self.options.batch_size, shuffle=shuffle, seed=seed
        )
        workers = worker_group(train_step.strategy)
        self.callbacks = CallbackList(
            as_callbacks(
                callbacks,
                train_step,
                metrics=_evaluated_names(evaluate),
                epochs=self.options.epochs,
                progress=progress,
            ),
            workers,
        )
        if checkpoints is not None:
            checkpoints.hold_callbacks(self.callbacks.variables())
        self._data_given = batches
        data = EpochData(
            self.batches,
            steps_per_epoch=self.options.steps_per_epoch,
            must_resume=checkpoints is not None or workers.size > 1,
            needs_end=epochs is not None,
            by_epoch=callable(batches),
        )
        self._run = Run(train_step, data, self.callbacks, checkpoints, WorkerSync(workers))
        self._epochs = EpochRunner(self._run, self.options, evaluate)
        self.steps_per_epoch = self.options.steps_per_epoch
        self.steps_per_loop = self.options.steps_per_loop
        self._fits = 0
        self._program: Fingerprint = {}
        self._last_weights: list[np.ndarray] | None = None

    @property
    def checkpoints(self) -> Checkpoints | None:
        """Saves the training; None: do not save."""
        return self._run.checkpoints

    @naming_replacements()
    def fit(self, *, epochs: int | None = None, steps: int | None = None) -> FitResult:
        """Train, from the latest checkpoint if there is one; a second call continues the first.

        Each call adds the epochs or steps of the constructor or of the call, and begins where the
        previous call ended. A program that was killed makes the same calls again: completed calls
        are not repeated, and the unfinished one continues.

        If the length of a completed call has grown since, the call continues from its checkpoint,
        as if it had been longer from the beginning.

        Args:
            epochs: Replaces the constructor's length.
            steps: Replaces the constructor's length.

        Raises:
            NonFiniteError: See `TrainStep`.
            Preempted: This or another worker received SIGTERM, and a checkpoint was saved. A
                SystemExit with code 143. Without checkpoints the signal ends the process.
            ValueError: An epoch has no batch, or the checkpoint is from another run. The message
                lists the differences.
            Disagreement: Workers differ in model, data or options.
            WorkerLost: One of several workers was lost.
        """
        if epochs is None and steps is None:
            epochs, steps = self.options.epochs, self.options.steps
        with doing("in TrainingLoop.fit", limit="long"):
            return self._fit(Length.of(epochs, steps))

    def _fit(self, length: Length) -> FitResult:
        run, history = self._run, self._run.history
        number = self._fits
        if number == 0 or number == len(history.calls):
            self.callbacks.call("on_begin")
        if number == 0:
            self._prepare(length)
        if number < len(history.calls) - 1:
            logging.info("Call %d of fit has ended: the checkpoint is of a later one", number + 1)
            self._fits += 1
            return history.result(number)
        if number == len(history.calls):
            self._begin_call(length)
        else:
            folder = "" if run.checkpoints is None else run.checkpoints.directory
            run.state = history.continue_call(length, run.state, step=run.step, directory=folder)
        saves = run.checkpoints is not None
        with run.sync.noting_sigterm() if saves else contextlib.nullcontext():
            self._epochs.begin_fit()
            while run.state.stopped is None:
                self._epochs.run_epoch()
        self._fits += 1
        return self._finish()

    def _prepare(self, length: Length) -> None:
        """Compare the program with the other workers and the checkpoint, then restore it."""
        workers = self._run.sync.workers
        if not self._program and (workers.size > 1 or self._run.checkpoints is not None):
            self._program = program_fingerprint(
                self.train_step,
                self._data_given,
                self.options,
                self.evaluate,
                self.callbacks.all,
                first_pass=self._run.data.first_pass,
            )
        if workers.size > 1:
            workers.assert_same_on_all_workers("program", self._program)
        if self._run.checkpoints is not None:
            self._epochs.forget_iterator()
            self._run.restore(self._program, length)

    def _begin_call(self, length: Length) -> None:
        if self._last_weights is not None:
            variables = self.train_step.model.variables
            for variable, value in zip(variables, self._last_weights, strict=True):
                variable.value.assign(value)
        run = self._run
        run.state = run.state.replace(stopped=None)
        run.history.begin_call(length, epoch=run.state.epoch, step=run.step)

    def _finish(self) -> FitResult:
        run = self._run
        if self.train_step.averages or self.callbacks.may_change_weights:
            self._last_weights = [v.numpy() for v in self.train_step.model.variables]
        restored = self.callbacks.before_export()
        if restored is None:
            self.train_step.use_averages()
        else:
            run.state = run.state.replace(metrics=restored)
        result = run.result()
        run.history.set_result(result)
        self.callbacks.call("on_end", result)
        return result


def _evaluated_names(evaluate: Evaluate | None) -> list[str] | None:
    """Return the names of the evaluated metrics; None if unknown before the first call."""
    if evaluate is None:
        return []
    if isinstance(evaluate, Evaluation):
        return evaluate.names
    return None
