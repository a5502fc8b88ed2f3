"""Train over epochs: calls of the graph, evaluation, callbacks and checkpoints."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from absl import logging

from trainer_module.checks.compiled import learning_rate_of
from trainer_module.common.keras_arguments import naming_replacements
from trainer_module.common.tensors import Batch
from trainer_module.data.epoch_data import BatchSource, EpochData, as_batches
from trainer_module.devices.multi_worker import worker_group
from trainer_module.loop.callback import EpochEnd, FitResult, LoopProgress
from trainer_module.loop.callback_list import AnyCallback, CallbackList, as_callbacks
from trainer_module.loop.checkpoints import Checkpoints
from trainer_module.loop.evaluation import Evaluate, Evaluation
from trainer_module.loop.run import Length, Run, WorkerSync
from trainer_module.loop.run_fingerprint import Fingerprint, program_fingerprint
from trainer_module.options.run_options import LoopOptions
from trainer_module.options.settings import parse_section
from trainer_module.step.reports import LoopReport, ServerLost, Step

_SECONDS_PER_LOOP = 0.5
_MOST_STEPS_PER_LOOP = 10_000


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
            batches: Global batches of one epoch: a tf.data.Dataset, or a function from the epoch's
                number (from 0) to the same dataset at each call. Or the rows: a tuple of arrays or
                lists (features, labels[, weights]), which needs `batch_size`. With checkpoints, a
                dataset that reshuffles at each epoch needs a seed.
            epochs: Passes over `batches`. Give either `epochs` or `steps`.
            steps: Optimizer steps; the batches are repeated as needed.
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
            callbacks: One or several, called in order. Keras callbacks are called as
                by `fit` of Keras; a batch is one call of the graph.
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
        names = [] if evaluate is None else None  # None: unknown before the first call
        self.callbacks = CallbackList(
            as_callbacks(
                callbacks,
                train_step,
                metrics=evaluate.names if isinstance(evaluate, Evaluation) else names,
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
        length = Length.of(self.options)
        self._run = Run(train_step, data, self.callbacks, checkpoints, WorkerSync(workers), length)
        per_loop = self.options.steps_per_loop
        self._is_auto = per_loop == "auto"
        self._loop_size = 1 if per_loop == "auto" else per_loop
        self._iterator: Any = None  # an iterator over the epoch's batches while it is open
        self._program: Fingerprint = {}
        self._has_ended = False

    @naming_replacements()
    def fit(self) -> FitResult:
        """Train, from the latest checkpoint if there is one.

        A program that was killed makes the same call again, which continues. If the length has
        grown since a checkpoint, training continues as if it had been longer from the beginning.

        Raises:
            NonFiniteError: See `TrainStep`.
            Preempted: This or another worker received SIGTERM, and a checkpoint was saved. A
                SystemExit with code 143. Without checkpoints the signal ends the process.
            ValueError: An epoch has no batch, the checkpoint is from another run (the message
                lists the differences), or this loop has ended.
            Disagreement: Workers differ in model, data or options.
            WorkerLost: One of several workers was lost.
        """
        if self._has_ended:
            raise ValueError(
                "fit() of this TrainingLoop has ended: make another one with the same step to "
                "train on, with more epochs if it has the same checkpoints."
            )
        run = self._run
        self.callbacks.call("on_begin")
        self._prepare()
        saves = run.checkpoints is not None
        with run.sync.noting_sigterm() if saves else contextlib.nullcontext():
            while run.state.stopped is None:
                self._begin_epoch()
                stop = exhausted = False
                while not (stop or exhausted) and (wanted := self._steps_of_next_loop()):
                    with self._closing_data_on_error():
                        run.callbacks.call("on_loop_begin")
                        started = time.monotonic()
                        report = run.train_step.run(
                            self._iterator, wanted, loss_sums=run.state.epoch_loss
                        )
                        stop = self._after_loop(report, time.monotonic() - started)
                        exhausted = report.exhausted and not self._start_next_pass()
                self._end_epoch(exhausted=exhausted, stop=stop)
        self._has_ended = True
        return self._finish()

    def _prepare(self) -> None:
        """Compare the program with the other workers and the checkpoint, then restore it."""
        run = self._run
        if not run.state.epochs_begun:
            run.state = run.state.replace(first_step=run.step)
        workers = run.sync.workers
        if not self._program and (workers.size > 1 or run.checkpoints is not None):
            self._program = program_fingerprint(
                self.train_step,
                self._data_given,
                self.options,
                self.evaluate,
                self.callbacks.all,
            )
        if workers.size > 1:
            workers.assert_same_on_all_workers("program", self._program)
        if run.checkpoints is not None:
            self._iterator = None  # reading restarts at the position in the run's state
            run.restore(self._program)

    def _finish(self) -> FitResult:
        run = self._run
        restored = self.callbacks.before_export()
        if restored is None:
            self.train_step.use_averages()
        else:
            run.state = run.state.replace(metrics=restored)
        result = run.result()
        self.callbacks.call("on_end", result)
        return result

    def _begin_epoch(self) -> None:
        """Open the data at the position in the epoch, unless it is open from the previous call."""
        run = self._run
        if self._iterator is None:
            self._iterator = self._open(run.state.step_in_epoch)
            if run.state.step_in_epoch == 0:
                run.callbacks.call("on_epoch_begin", run.state.epoch + 1)

    @contextlib.contextmanager
    def _closing_data_on_error(self) -> Iterator[None]:
        """Close the data after an error: it may have returned batches that were not trained on."""
        run = self._run
        try:
            yield
        except BaseException as error:
            self._iterator = None
            run.data.forget_iterator()
            if isinstance(error, ServerLost):
                raise ServerLost(f"{error}: {run.restart_hint()}") from error
            raise

    def _start_next_pass(self) -> bool:
        """Open the next pass if the last epoch used up this one; only the next read shows it."""
        run = self._run
        if run.state.step_in_epoch > 0 or not run.data.start_next_pass():
            return False
        self._iterator = self._open(0)
        return True

    def _open(self, step_in_epoch: int) -> Iterator[Batch]:
        return self._run.data.begin(self._run.state.epoch, step_in_epoch, self._run.step)

    def _steps_of_next_loop(self) -> int:
        """Return the number of steps until something else is due; 0 ends the epoch."""
        run = self._run
        wanted = self._loop_size
        last_step = run.state.last("steps")
        if last_step is not None:
            wanted = min(wanted, last_step - run.step)
        if run.data.steps is not None:
            wanted = min(wanted, run.data.steps - run.state.step_in_epoch)
        sizes = run.data.batch_sizes
        change = None if sizes is None else sizes.next_change(run.step)
        if change is not None:  # so that each call reports one size
            wanted = min(wanted, change - run.step)
        every = run.checkpoints.every_steps if run.checkpoints is not None else None
        if every is not None:
            wanted = min(wanted, every - run.step % every)
        due = run.callbacks.steps_until_due(run.step)
        return max(0, wanted if due is None else min(wanted, due))

    def _after_loop(self, report: LoopReport, seconds: float) -> bool:
        """Update the state, call the callbacks and save; return whether a callback ends the run.

        Raises:
            Preempted: SIGTERM was received, and a checkpoint was saved.
        """
        run = self._run
        run.state = run.state.after_call(report)
        run.data.took(report.steps)
        sizes = run.data.batch_sizes
        if report.steps and sizes is not None and run.step in sizes.steps:
            logging.info(
                "From step %s on, global batches have %s rows, and the learning rate is %.3g",
                f"{run.step:,}",
                f"{sizes.at(run.step):,}",
                learning_rate_of(run.train_step.optimizer),
            )
        stop = False
        if report.steps:
            if self._is_auto:
                fitting = _SECONDS_PER_LOOP * report.steps / max(seconds, 1e-9)
                # Grow at most tenfold: the first call's time is mostly tracing.
                most = min(10 * self._loop_size, _MOST_STEPS_PER_LOOP)
                self._loop_size = int(max(1, min(fitting, most)))
            stop = any(run.callbacks.call("on_loop", self._progress(report, seconds)))
        saved = run.checkpoints
        overdue = saved is not None and saved.is_overdue()
        decision = run.sync.decide(run.step, stop=stop, value=[self._loop_size, overdue])
        self._loop_size, overdue = decision.value
        # At the end of an epoch, save after the evaluation: the checkpoint includes its metrics.
        if report.exhausted or decision.stop or not self._steps_of_next_loop():
            overdue = preempted = False
        else:
            preempted = decision.preempted
        every = None if saved is None else saved.every_steps
        due = report.steps > 0 and every is not None and run.step % every == 0
        if saved is not None and (due or overdue or preempted):
            run.save(preempted=preempted)
        return decision.stop

    def _progress(self, report: LoopReport, seconds: float) -> LoopProgress:
        run = self._run
        return LoopProgress(
            step=run.step,
            steps=report.steps,
            total_steps=run.total_steps,
            epoch=run.state.epoch + 1,
            epochs=run.state.last("epochs"),
            loss=report.loss,
            gradient_norm=report.gradient_norm,
            learning_rate=learning_rate_of(run.train_step.optimizer),
            rows=report.rows,
            seconds=seconds,
            noise_scale=report.noise_scale,
        )

    def _end_epoch(self, *, exhausted: bool, stop: bool) -> None:
        """Evaluate and call the callbacks; an unfinished epoch continues if training does.

        Raises:
            ValueError: The training data has no batch.
            Preempted: SIGTERM was received, and a checkpoint was saved.
        """
        run = self._run
        number, loss = run.state.epoch + 1, run.state.mean_epoch_loss
        steps = run.state.step_in_epoch
        if steps == 0:
            raise ValueError("the training data has no batch: check the split and its files.")
        if exhausted or steps >= (run.data.steps or math.inf):
            run.data.end(run.state.epoch, steps, exhausted=exhausted)
            run.state, self._iterator = run.state.after_epoch(), None
        if run.state.unevaluated_steps:
            stop = self._evaluate_epoch(number, loss) or stop
        saved = run.checkpoints
        due = saved is not None and saved.due()
        decision = run.sync.decide(run.step, stop=stop, value=due)
        for kind, reached in (("steps", run.step), ("epochs", run.state.epoch)):
            last = run.state.last(kind)
            if last is not None and reached >= last:
                run.state = run.state.replace(stopped=kind)
        if decision.stop and run.state.stopped is None:
            run.state = run.state.replace(stopped="early_stopping")
        ended = run.state.stopped is not None
        if saved is not None and (ended or decision.value or decision.preempted):
            run.save(preempted=decision.preempted)

    def _evaluate_epoch(self, number: int, loss: float) -> bool:
        run = self._run
        with run.train_step.averaged():
            found = self.evaluate() if self.evaluate is not None else {}
            metrics = run.sync.workers.broadcast_from_chief("evaluation", found)
            logs = {"loss": loss, **{f"val_{name}": value for name, value in metrics.items()}}
            end = EpochEnd(run.step, number, loss, metrics, logs)
            stop = any(run.callbacks.call("on_epoch", end))
        run.state = run.state.after_evaluation(metrics, logs)  # callbacks may add to the logs
        return stop
