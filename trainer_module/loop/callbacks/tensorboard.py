"""Write scalars for TensorBoard."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from trainer_module.loop.callbacks.callback import Callback, EpochEnd, FitResult, LoopProgress

if TYPE_CHECKING:
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

# Largest delay before scalars are visible in TensorBoard.
_SECONDS_UNTIL_SEEN = 10


class TensorBoardScalars(Callback):
    """Write scalars to `<directory>/train` and `<directory>/eval`."""

    on_chief_only = True

    def __init__(self, directory: str) -> None:
        """Create the writers.

        Raises:
            ModuleNotFoundError: The package tensorboard is not installed.
        """
        self._train, self._eval = (_writer(f"{directory}/{name}") for name in ("train", "eval"))

    def on_loop(self, progress: LoopProgress) -> None:
        """Write loss, gradient norm, learning rate, rows per second, noise scale, task weights.

        `seconds_per_step/reading`, `.../computing` and `.../other` are the parts of the wall time.
        """
        values = {
            "loss": progress.loss,
            "gradient_norm": progress.gradient_norm,
            "learning_rate": progress.learning_rate,
            "examples_per_second": progress.rows / max(progress.seconds, 1e-9),
        }
        if not math.isnan(progress.noise_scale):
            values["gradient_noise_scale"] = progress.noise_scale
        weights = progress.task_weights or {}
        values |= {f"task_weight/{name}": weight for name, weight in weights.items()}
        values |= {
            f"seconds_per_step/{part}": seconds / progress.steps
            for part, seconds in (progress.parts or {}).items()
        }
        _write(self._train, progress.step, values)

    def on_epoch(self, end: EpochEnd) -> bool:
        """Write the evaluation."""
        _write(self._eval, end.step, end.metrics)
        return False

    def on_end(self, result: FitResult) -> None:
        """Close the files."""
        self._train.close()
        self._eval.close()


def write_scalars(directory: str, step: int, values: dict[str, float]) -> None:
    """Write scalars to another file of a folder, after `TensorBoardScalars` has closed its files.

    Raises:
        ModuleNotFoundError: The package tensorboard is not installed.
    """
    writer = _writer(directory)
    _write(writer, step, values)
    writer.close()


def _writer(directory: str) -> EventFileWriter:
    try:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"TensorBoardScalars needs {error.name}, which is not installed: "
            "uv pip install 'tfx-largebatch[tensorboard]', or leave out TensorBoardScalars "
            "(tensorboard: false).",
            name=error.name,
        ) from error
    return EventFileWriter(directory, flush_secs=_SECONDS_UNTIL_SEEN)


def _write(writer: EventFileWriter, step: int, values: dict[str, float]) -> None:
    """Queue all values as one event for the writer's thread; tf.summary takes far longer.

    `simple_value` is the most compact way to write a scalar, a few bytes; TensorBoard reads it,
    too.
    """
    from tensorboard.compat.proto.event_pb2 import Event

    if not values:
        return
    event = Event(wall_time=time.time(), step=step)
    for name, value in values.items():
        event.summary.value.add(tag=name, simple_value=value)
    writer.add_event(event)
