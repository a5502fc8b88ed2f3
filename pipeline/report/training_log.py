"""What a training wrote: curves for TensorBoard, and the metrics of each epoch in a checkpoint."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

_SPLITS = ("train", "eval")  # folders of event files in the Trainer's output `model_run`

MOST_POINTS = 500

EVAL = "val_"
"""Prefix of the metrics of the eval split, as in Keras."""


@dataclass(frozen=True)
class Curve:
    """A value by optimizer step.

    Attributes:
        split: `train` or `eval`.
        name: Name of the scalar, such as `loss`.
        steps: Optimizer steps, increasing.
        values: The value at each step; NaN and infinities as they were written.
        resumed: The first step after each restart from a checkpoint.
    """

    split: str
    name: str
    steps: Sequence[int]
    values: Sequence[float]
    resumed: Sequence[int] = ()


def curves_of(model_run: Path, *, points: int | None = MOST_POINTS) -> list[Curve]:
    """Return the curves of a training, each with at most `points` points.

    A training that was resumed has a file for each start. Steps that were repeated after a restart
    have the values of the last start.

    Args:
        model_run: Folder of the Trainer's output `model_run`; local.
        points: See `thin`; None: all.

    Raises:
        ModuleNotFoundError: The package tensorboard is not installed.
    """
    return [curve for split in _SPLITS for curve in _curves(split, model_run / split, points)]


def thin(
    steps: Sequence[int], values: Sequence[float], points: int = MOST_POINTS
) -> tuple[list[int], list[float]]:
    """Return at most `points` points of a curve: both ends, and the extremes of equal parts."""
    if len(steps) <= points:
        return list(steps), list(values)
    known = np.asarray(values, np.float64)
    kept = {0, len(known) - 1}
    for part in np.array_split(np.arange(len(known)), (points - 2) // 2):
        finite = part[np.isfinite(known[part])]
        chosen = finite if len(finite) else part
        kept |= {int(chosen[known[chosen].argmin()]), int(chosen[known[chosen].argmax()])}
    at = sorted(kept)
    return [steps[i] for i in at], [values[i] for i in at]


def _curves(split: str, folder: Path, points: int | None) -> Iterator[Curve]:
    # Names of files have whole seconds; a restart may follow within one.
    files = sorted(map(_scalars, folder.glob("events.out.tfevents.*")), key=lambda file: file[0])
    starts: dict[str, list[tuple[list[int], list[float]]]] = {}
    for _, scalars in files:
        for name, series in scalars.items():
            starts.setdefault(name, []).append(series)
    for name, parts in starts.items():
        steps: list[int] = []
        values: list[float] = []
        for part_steps, part_values in parts:
            before = int(np.searchsorted(steps, part_steps[0]))
            steps, values = steps[:before] + part_steps, values[:before] + part_values
        resumed = tuple(part_steps[0] for part_steps, _ in parts[1:])
        if points is not None:
            steps, values = thin(steps, values, points)
        yield Curve(split, name, steps, values, resumed)


def _scalars(file: Path) -> tuple[float, dict[str, tuple[list[int], list[float]]]]:
    """Return when an event file begins, and steps and values of each scalar.

    A file that ends in a damaged record is read up to there.
    """
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    start = math.inf
    found: dict[str, tuple[list[int], list[float]]] = {}
    for event in LegacyEventFileLoader(str(file)).Load():
        start = min(start, event.wall_time)
        for value in event.summary.value:
            if value.WhichOneof("value") == "simple_value":
                steps, values = found.setdefault(value.tag, ([], []))
                steps.append(event.step)
                values.append(value.simple_value)
    return start, found


@dataclass(frozen=True)
class TrainingHistory:
    """A training up to its last checkpoint.

    Attributes:
        logs: Metric -> its value after each epoch; metrics of the eval split begin with `EVAL`.
        steps: Optimizer steps.
        epochs: Epochs that began.
        kept: The epoch, from 0, whose weights the model has; None if unknown.
        stopped: Why it ended, such as `epochs`; "" if it did not end.
        skipped: Reason -> number of steps that updated nothing.
    """

    logs: Mapping[str, Sequence[float]]
    steps: int | None = None
    epochs: int | None = None
    kept: int | None = None
    stopped: str = ""
    skipped: Mapping[str, int] = field(default_factory=dict)


def history_of(checkpoints: Path) -> TrainingHistory | None:
    """Return the history in the newest checkpoint below a folder; None if it has none.

    Args:
        checkpoints: Folder of the Trainer's checkpoints, with a folder for each fingerprint.
    """
    # TensorFlow names the latest checkpoint of a folder in the file `checkpoint`.
    states = sorted(checkpoints.glob("*/checkpoint"), key=lambda file: file.stat().st_mtime)
    if not states:
        return None
    import tensorflow as tf

    latest = tf.train.latest_checkpoint(str(states[-1].parent))
    reader = None if latest is None else tf.train.load_checkpoint(latest)
    if reader is None or not reader.has_tensor("position"):
        return None
    position = json.loads(reader.get_tensor("position"))
    logs = position.get("history") or {}
    return TrainingHistory(
        logs=logs,
        steps=position.get("steps"),
        epochs=position.get("epoch", 0) + bool(position.get("step_in_epoch")),
        kept=_kept(logs, position.get("metrics") or {}),
        stopped=position.get("stopped") or "",
        skipped=position.get("skipped") or {},
    )


def _kept(logs: Mapping[str, Sequence[float]], metrics: Mapping[str, float]) -> int | None:
    """Return the last epoch that has a training's metrics: its best one if that was restored."""
    wanted = {f"{EVAL}{name}": value for name, value in metrics.items() if f"{EVAL}{name}" in logs}
    epochs = min((len(logs[name]) for name in wanted), default=0)
    matching = [i for i in range(epochs) if all(logs[n][i] == v for n, v in wanted.items())]
    return matching[-1] if matching else None
