"""Measure where the time of optimizer steps goes, in one process on CPU devices."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Iterator
from typing import Any, Literal

import tensorflow as tf

from trainer_module.common.user_values import check_positive_int
from trainer_module.data.epoch_data import Batches, BatchSource, as_batches
from trainer_module.devices.memory_budget import format_bytes, memory_status, reset_peak
from trainer_module.devices.replicas import is_multi_worker, replica_kind
from trainer_module.options.step_options import StepOptions
from trainer_module.profiling.timeline import CALL, OPEN, XLA_PART, divide_wall_time, read_trace
from trainer_module.step.scaled_learning_rate import follow_steps
from trainer_module.step.train_step import SavedState, TrainStep

STEPS = 50
_MOST_STEPS = 1000  # of one trace
_SECONDS_PER_CALL = 0.5  # as in TrainingLoop
_FIRST_STEPS = 2


@dataclasses.dataclass(frozen=True)
class StepProfile:
    """Where the time of optimizer steps went. `print(profile)` shows it as a table.

    Attributes:
        parts: Seconds per step of each part: reading, forward, backward, window
            (XLA), reduction over replicas, update, host overhead. They add up to
            `recorded_seconds`.
        recorded_seconds: Wall time of a step while TensorFlow's profiler records, which makes steps
            slower.
        seconds: Wall time of a step without the profiler, in a run directly before.
        rows_per_second: Rows per second of that run.
        steps: Number of steps in each of the two runs.
        global_batch_rows: Mean number of rows of a step.
        micro_batch_size: Rows of a micro-batch on one replica.
        replicas: Number of replicas.
        peak_memory_bytes: Peak of the resident memory of this process in the run without the
            profiler, with TensorFlow itself, the model and the data.
    """

    parts: dict[str, float]
    recorded_seconds: float
    seconds: float
    rows_per_second: float
    steps: int
    global_batch_rows: float
    micro_batch_size: int
    replicas: int
    peak_memory_bytes: int

    def __str__(self) -> str:
        """Return the table as text."""
        total = sum(self.parts.values())
        slower = self.recorded_seconds / self.seconds - 1 if self.seconds > 0 else 0.0
        shown = {n: t for n, t in self.parts.items() if n != XLA_PART or t > 0}
        return "\n".join(
            [
                f"{self.steps} steps of {self.global_batch_rows:,.0f} rows on {self.replicas} "
                f"replica{'s'[: self.replicas - 1]}, micro-batches of "
                f"{self.micro_batch_size:,} rows",
                "",
                f"{'part':<28} {'ms per step':>11} {'share':>6}",
                *(
                    f"{name:<28} {seconds * 1e3:>11,.2f} {seconds / max(total, 1e-12):>6.1%}"
                    for name, seconds in (*shown.items(), ("wall time", total))
                ),
                "",
                f"rows/s        {self.rows_per_second:,.0f} ({self.seconds * 1e3:,.2f} ms per step"
                f"; the profiler adds {max(slower, 0.0):.0%})",
                f"peak memory   {format_bytes(self.peak_memory_bytes)} of this process",
            ]
        )


def profile_step(
    train_step: TrainStep,
    batches: BatchSource,
    *,
    steps: int = STEPS,
    batch_size: int | None = None,
    steps_per_loop: int | Literal["auto"] = "auto",
) -> StepProfile:
    """Take optimizer steps with TensorFlow's profiler, and return where their time went.

    The same steps run twice, after those that trace the graph: without the profiler for rows per
    second and peak memory, then with it for the parts (docs/profiling.md). The profiler costs about
    a microsecond per operation: compare `recorded_seconds` with `seconds`.

    Model, optimizer, averages and counters have their previous values afterwards. A dataset that
    reshuffles has another order in its next iterator.

    Args:
        train_step: The step to profile, on CPU devices of one process. Its graph for training does
            not change: the profile traces another one.
        batches: Global batches as in `TrainingLoop`, repeated as often as needed.
        steps: Optimizer steps of each run, at most 1,000.
        batch_size: As in `TrainingLoop`.
        steps_per_loop: Optimizer steps per call of the graph, as in `TrainingLoop`.

    Returns:
        The profile; `print` shows it as a table.

    Raises:
        ValueError: The step is not a `TrainStep`, runs on several workers or on GPUs, a count is
            invalid, there is no batch, another profiler is active in this process, or TensorFlow
            does not record XLA's operations, as 2.21 does not.
        NonFiniteError: See `TrainStep`.

    Example:
        step = TrainStep(model, optimizer, "mse", micro_batch_size=64)
        print(profile_step(step, dataset.batch(256)))
    """
    _check_step(train_step)
    steps = check_positive_int("steps", steps)
    if steps > _MOST_STEPS:
        raise ValueError(
            f"steps={steps}: the trace of so many is too large; use at most {_MOST_STEPS:,}."
        )
    if steps_per_loop != "auto":
        steps_per_loop = check_positive_int("steps_per_loop", steps_per_loop)
    data = as_batches(batches, batch_size=batch_size, shuffle=None, seed=None)
    before = SavedState(train_step)
    try:
        copy = _copy(train_step)
        runner = _Runner(copy, data)
        per_call = _steps_per_call(runner, steps, steps_per_loop)
        reset_peak()
        seconds, rows = runner.run(steps, per_call)
        peak = memory_status()["VmHWM"]
        with tempfile.TemporaryDirectory(prefix="profile-") as folder:
            with _profiler(folder):
                recorded, _ = runner.run(steps, per_call)
            events = read_trace(folder)
    finally:
        before.restore()
        follow_steps(train_step.optimizer, train_step.step)  # not the copy's
    parts = {name: each / steps for name, each in divide_wall_time(events).items()}
    if copy.is_compiled and not parts[XLA_PART]:
        raise ValueError(
            f"TensorFlow {tf.__version__} does not record the operations of XLA, with which the "
            "step is compiled: their time would count as host overhead; profile with "
            "jit_compile=False."
        )
    return StepProfile(
        parts=parts,
        recorded_seconds=recorded / steps,
        seconds=seconds / steps,
        rows_per_second=rows / seconds,
        steps=steps,
        global_batch_rows=rows / steps,
        micro_batch_size=train_step.options.micro_batch_size,
        replicas=train_step.strategy.num_replicas_in_sync,
        peak_memory_bytes=peak,
    )


class _Runner:
    """Takes steps over data that is repeated as often as needed."""

    def __init__(self, step: TrainStep, data: Batches) -> None:
        self._step, self._data = step, data
        self._epoch = 0
        self._iterator: Iterator[Any] | None = None

    def run(self, steps: int, per_call: int) -> tuple[float, int]:
        """Take steps; return the wall time in seconds and the number of rows."""
        rows = done = 0
        started = time.perf_counter()
        while done < steps:
            is_new = self._iterator is None
            if self._iterator is None:
                with tf.profiler.experimental.Trace(OPEN):
                    data = self._data
                    dataset: BatchSource = data(self._epoch) if callable(data) else data
                    self._iterator = iter(dataset)
                    self._epoch += 1
            with tf.profiler.experimental.Trace(CALL):
                report = self._step.run(self._iterator, min(per_call, steps - done))
            if is_new and not report.steps:
                raise ValueError("the data has no batch: check the split and its files.")
            rows, done = rows + report.rows, done + report.steps
            if report.exhausted:
                self._iterator = None
        return time.perf_counter() - started, rows


def _steps_per_call(runner: _Runner, steps: int, wanted: int | Literal["auto"]) -> int:
    """Trace the graph, and return the number of steps per call; "auto": half a second's worth."""
    runner.run(1, 1)
    seconds, _ = runner.run(_FIRST_STEPS, _FIRST_STEPS)
    if wanted != "auto":
        return wanted
    return int(max(1, min(_SECONDS_PER_CALL * _FIRST_STEPS / max(seconds, 1e-9), steps)))


def _copy(step: TrainStep) -> TrainStep:
    """Return a step of the same model, optimizer, options and state, whose graph is not traced."""
    options: Any = {name: getattr(step.options, name) for name in StepOptions.model_fields}
    copy = TrainStep(step.model, step.optimizer, step.loss_fn, strategy=step.strategy, **options)
    with step.strategy.scope():
        for variable, old in zip(copy.state(), step.state(), strict=True):
            variable.assign(old.read_value())
    return copy


@contextlib.contextmanager
def _profiler(folder: str) -> Iterator[None]:
    """Record a trace, without the calls of Python functions."""
    # Level 3 has the operations, too, that TensorFlow found to be short.
    options = tf.profiler.experimental.ProfilerOptions(
        host_tracer_level=3, python_tracer_level=0, device_tracer_level=0
    )
    try:
        tf.profiler.experimental.start(folder, options)
    except tf.errors.AlreadyExistsError:
        raise ValueError(
            "another TensorFlow profiler is active in this process: stop it first, with "
            "tf.profiler.experimental.stop()."
        ) from None
    try:
        yield
    finally:
        tf.profiler.experimental.stop()


def _check_step(train_step: TrainStep) -> None:
    if not isinstance(train_step, TrainStep):
        raise ValueError(
            f"train_step is a {type(train_step).__name__}: give a TrainStep. For parameter "
            "servers, profile the same model and rows with a TrainStep in one process."
        )
    strategy = train_step.strategy
    if is_multi_worker(strategy):
        raise ValueError(
            f"train_step has a {type(strategy).__name__} of several workers, each of which has "
            'another clock: profile with create_strategy("auto") in one process.'
        )
    if replica_kind(strategy) == "GPU":
        raise ValueError(
            "train_step runs on GPUs, where the host only starts operations, and their time would "
            "be wrong here: use tf.profiler.experimental and TensorBoard's profile plugin."
        )
