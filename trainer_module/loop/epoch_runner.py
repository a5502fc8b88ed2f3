"""Run one epoch: calls of the graph, checkpoints that are due, and the evaluation."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from absl import logging

from trainer_module.checks.compiled import learning_rate_of
from trainer_module.common.tensors import Batch
from trainer_module.devices.main_thread import doing
from trainer_module.loop.callback import EpochEnd, LoopProgress
from trainer_module.loop.evaluation import Evaluate
from trainer_module.loop.run import Run
from trainer_module.options.loop_options import LoopOptions
from trainer_module.step.reports import LoopReport, ServerLost

_SECONDS_PER_LOOP = 0.5
_MOST_STEPS_PER_LOOP = 10_000


class EpochRunner:
    """Train from the current state of a run to the end of the epoch or of training."""

    def __init__(self, run: Run, options: LoopOptions, evaluate: Evaluate | None) -> None:
        """Create a runner without an open iterator."""
        self.run = run
        self._evaluate = evaluate
        self._is_auto = options.steps_per_loop == "auto"
        self._loop_size = 1 if options.steps_per_loop == "auto" else options.steps_per_loop
        self._iterator: Iterator[Batch] | None = None
        self._times = _WallTime()

    def begin_fit(self) -> None:
        """Leave what happened between two calls of `fit` out of the parts of the wall time."""
        self._times.restart()

    def forget_iterator(self) -> None:
        """Drop the iterator, so that reading restarts at the position in the run's state."""
        self._iterator = None

    def run_epoch(self) -> None:
        """Run the rest of the epoch.

        Raises:
            ValueError: The training data has no batch.
            Preempted: SIGTERM was received, and a checkpoint was saved.
        """
        run = self.run
        epoch = run.state.epoch
        if self._iterator is None:
            self._iterator = self._open(run.state.step_in_epoch)
            if run.state.step_in_epoch == 0:
                run.callbacks.call("on_epoch_begin", epoch + 1)
        stop, exhausted = False, False
        while not (stop or exhausted) and (wanted := self._steps_of_next_loop()):
            try:
                report, stop = self._run_loop(self._iterator, wanted)
            except BaseException as error:
                self._iterator = None  # it may have returned batches that were not trained on
                run.data.forget_iterator()
                if isinstance(error, ServerLost):
                    raise ServerLost(f"{error}: {run.restart_hint()}") from error
                raise
            exhausted = report.exhausted
            # The previous epoch ended exactly at the end of the data. Only the next read shows it.
            if exhausted and run.state.step_in_epoch == 0 and run.data.start_next_pass():
                self._iterator, exhausted = self._open(0), False
        steps = run.state.step_in_epoch
        if steps == 0:
            raise ValueError("the training data has no batch: check the split and its files.")
        ended = exhausted or steps >= (run.data.steps or math.inf)
        if ended:
            run.data.end(epoch, steps, exhausted=exhausted)
        self._end_epoch(whole=ended, stop=stop)

    def _open(self, step_in_epoch: int) -> Iterator[Batch]:
        started = time.monotonic()
        with doing("opening the training data", limit="long"):
            iterator = self.run.data.begin(self.run.state.epoch, step_in_epoch, self.run.step)
        self._times.add_opening(time.monotonic() - started)
        return iterator

    def _steps_of_next_loop(self) -> int:
        """Return the number of steps until something else is due; 0 ends the epoch."""
        run = self.run
        wanted = self._loop_size
        last_step = run.history.call.last("steps")
        if last_step is not None:
            wanted = min(wanted, last_step - run.step)
        if run.data.steps is not None:
            wanted = min(wanted, run.data.steps - run.state.step_in_epoch)
        change = self._next_change()
        if change is not None:  # so that each call reports one size
            wanted = min(wanted, change - run.step)
        every = run.checkpoints.every_steps if run.checkpoints is not None else None
        if every is not None:
            wanted = min(wanted, every - run.step % every)
        due = run.callbacks.steps_until_due(run.step)
        return max(0, wanted if due is None else min(wanted, due))

    def _next_change(self) -> int | None:
        """Return the next step with another batch size."""
        sizes = self.run.data.batch_sizes
        return None if sizes is None else sizes.next_change(self.run.step)

    def _run_loop(self, iterator: Iterator[Batch], wanted: int) -> tuple[LoopReport, bool]:
        run = self.run
        run.callbacks.call("on_loop_begin")
        change = self._next_change()
        started = time.monotonic()
        report = run.train_step.run(iterator, wanted, loss_sums=run.state.epoch_loss)
        seconds = time.monotonic() - started
        self._times.add_call(seconds, reading=report.reading_seconds)
        run.state = run.state.after_call(report)
        run.data.took(report.steps)
        if run.step == change:
            self._log_change()
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
        return report, decision.stop

    def _log_change(self) -> None:
        run = self.run
        assert run.data.batch_sizes is not None
        logging.info(
            "From step %s on, global batches have %s rows, and the learning rate is %.3g",
            f"{run.step:,}",
            f"{run.data.batch_sizes.at(run.step):,}",
            learning_rate_of(run.train_step.optimizer),
        )

    def _progress(self, report: LoopReport, seconds: float) -> LoopProgress:
        run = self.run
        return LoopProgress(
            step=run.step,
            steps=report.steps,
            total_steps=run.total_steps,
            epoch=run.state.epoch + 1,
            epochs=run.history.call.last("epochs"),
            loss=report.loss,
            gradient_norm=report.gradient_norm,
            learning_rate=learning_rate_of(run.train_step.optimizer),
            rows=report.rows,
            seconds=seconds,
            noise_scale=report.noise_scale,
            parts=self._times.divide(),
        )

    def _end_epoch(self, *, whole: bool, stop: bool) -> None:
        """Evaluate and call the callbacks; an unfinished epoch continues if training does."""
        run = self.run
        number, loss = run.state.epoch + 1, run.state.mean_epoch_loss
        if whole:
            run.state, self._iterator = run.state.after_epoch(), None
        if run.state.unevaluated_steps:
            stop = self._evaluate_epoch(number, loss) or stop
        saved = run.checkpoints
        due = saved is not None and saved.due()
        decision = run.sync.decide(run.step, stop=stop, value=due)
        call = run.history.call
        for kind, reached in (("steps", run.step), ("epochs", run.state.epoch)):
            last = call.last(kind)
            if last is not None and reached >= last:
                run.state = run.state.replace(stopped=kind)
        if decision.stop and run.state.stopped is None:
            run.state = run.state.replace(stopped="early_stopping")
        ended = run.state.stopped is not None
        if saved is not None and (ended or decision.value or decision.preempted):
            run.save(preempted=decision.preempted)

    def _evaluate_epoch(self, number: int, loss: float) -> bool:
        run = self.run
        with run.train_step.averaged():
            with doing("evaluating", limit="long"):
                found = self._evaluate() if self._evaluate is not None else {}
            metrics = run.sync.workers.broadcast_from_chief("evaluation", found)
            run.state = run.state.replace(metrics=metrics, unevaluated_steps=0)
            logs = {"loss": loss, **{f"val_{name}": value for name, value in metrics.items()}}
            stop = any(
                run.callbacks.call("on_epoch", EpochEnd(run.step, number, loss, metrics, logs))
            )
        run.history.add_epoch(logs)
        return stop


class _WallTime:
    """Divide the wall time from one progress report to the next into parts that add up to it.

    - `reading`: the data is opened, or the host waits for a batch. The update of the window before
      may run meanwhile.
    - `computing`: the rest of the calls of the graph. On a GPU, operations of the call run after
      the host has started them; the call ends when its loss is known.
    - `other`: between the calls: evaluation, checkpoints, callbacks, the agreement of workers.

    Example:
        times = WallTime()
        report = train_step.run(iterator, 100)
        times.add_call(0.5, reading=report.reading_seconds)
        times.divide()  # {"reading": 0.1, "computing": 0.4, "other": 0.02}
    """

    def __init__(self) -> None:
        """Start the first interval now."""
        self.restart()

    def restart(self) -> None:
        """Start an interval now, and forget the one before."""
        self._start = time.monotonic()
        self._opening = self._calls = self._waited = 0.0

    def add_opening(self, seconds: float) -> None:
        """Add the time of opening the data."""
        self._opening += seconds

    def add_call(self, seconds: float, *, reading: float) -> None:
        """Add a call of the graph."""
        self._calls += seconds
        # TensorFlow measures with another clock, which may be set meanwhile.
        self._waited += reading if math.isnan(reading) else min(max(reading, 0.0), seconds)

    def divide(self) -> dict[str, float]:
        """Return the seconds of each part, and start the next interval.

        Without `reading` if it is not measured; `other` includes opening the data then.
        """
        total = time.monotonic() - self._start
        if math.isnan(self._waited):
            parts = {"computing": self._calls, "other": total - self._calls}
        else:
            reading = self._opening + self._waited
            parts = {
                "reading": reading,
                "computing": self._calls - self._waited,
                "other": total - self._opening - self._calls,
            }
        self.restart()
        return parts
