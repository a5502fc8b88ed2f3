"""The curves of a training, from the TensorBoard files of its `model_run` artifact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MAX_POINTS = 1000
"""Points of a curve; longer ones are sampled, and keep their last point."""


class Point(NamedTuple):
    """A value of a curve.

    Attributes:
        name: `training/<train or eval>/<scalar>`.
        value: May be NaN.
        step: Optimizer steps taken.
        time_ms: Time since the epoch in milliseconds.
    """

    name: str
    value: float
    step: int
    time_ms: int


def read_curves(model_run: str) -> Iterator[Point]:
    """Yield what TensorBoardScalars wrote: `train` at calls of the graph, `eval` at epochs."""
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

    for part in ("train", "eval"):
        folder = Path(model_run, part)
        if not folder.is_dir():
            continue
        events = EventAccumulator(str(folder), size_guidance={SCALARS: MAX_POINTS}).Reload()
        for tag in events.Tags()[SCALARS]:
            for event in events.Scalars(tag):
                yield Point(
                    f"training/{part}/{tag}", event.value, event.step, round(event.wall_time * 1000)
                )
