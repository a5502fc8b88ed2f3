"""Where the wall time of a training went: a tile, a chart of a step's parts, and a hint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.page import charts
from pipeline.page.elements import Beside, Block, Chart, Text, Tile
from pipeline.page.finite import rounded
from pipeline.report.curves import Curve
from trainer_module.profiling.hints import find_hints

_SCALAR = "seconds_per_step/"
_IN_STEP = ("reading", "computing")
_MOST_BARS = 60


@dataclass(frozen=True)
class StepTimes:
    """The wall time of a training by part, for each interval between two points of its log.

    The first interval of each start is left out: it also traces the graph.

    Attributes:
        last: Last optimizer step of each interval, `[intervals]`.
        counts: Optimizer steps of each interval, `[intervals]`.
        parts: Seconds per step of `computing` and `other`, and of `reading` if the training
            measured it, each `[intervals]`.
    """

    last: np.ndarray
    counts: np.ndarray
    parts: Mapping[str, np.ndarray]

    @property
    def step(self) -> np.ndarray:
        """Seconds of a step, without what is between steps, `[intervals]`."""
        return sum((self.parts[name] for name in _IN_STEP if name in self.parts), np.zeros(()))

    def total(self, part: str) -> float:
        """Return the seconds of a part in all intervals; 0 if it was not measured."""
        return float((self.parts[part] * self.counts).sum()) if part in self.parts else 0.0


def step_times_of(curves: Sequence[Curve]) -> StepTimes | None:
    """Return the parts of the wall time; None if the log has none after its first point.

    Args:
        curves: All points of each curve: parts of thinned curves would be of different steps.
    """
    found = {
        curve.name.removeprefix(_SCALAR): curve
        for curve in curves
        if curve.split == "train" and curve.name.startswith(_SCALAR)
    }
    if "computing" not in found:
        return None
    longest = found["computing"]
    if any(list(curve.steps) != list(longest.steps) for curve in found.values()):
        return None  # another kind of step since a restart
    last = np.asarray(longest.steps)
    kept = ~np.isin(last, [last[0], *longest.resumed])
    if not kept.any():
        return None
    parts = {name: np.asarray(curve.values)[kept] for name, curve in found.items()}
    return StepTimes(last[kept], np.diff(last, prepend=0)[kept], parts)


def time_tile(times: StepTimes) -> Tile:
    """Return the tile of the time per step."""
    return Tile("time per step", f"{1e3 * np.median(times.step):,.3g} ms", "median of the points")


def time_blocks(times: StepTimes) -> list[Block]:
    """Return what the parts take, a chart of those of a step, and a hint if reading is slow."""
    seconds = {name: times.total(name) for name in _IN_STEP if name in times.parts}
    in_steps, other = sum(seconds.values()), times.total("other")
    if not in_steps > 0:
        return []
    shares = " and ".join(f"{name} {each / in_steps:.0%}" for name, each in seconds.items())
    between = other / (in_steps + other)
    text = (
        f"After the first call of the graph, steps take {1 - between:.0%} of the time ({shares}); "
        f"evaluation, checkpoints and callbacks between them take {between:.0%}."
    )
    hints = find_hints(seconds, micro_batches=1, load=0.0, cores=1)
    chart = _chart(times, f"Of the time of a step, {shares}.")
    return [Text(text), *(Text(f"Hint: {hint}") for hint in hints), Beside([chart])]


def _chart(times: StepTimes, description: str) -> Chart:
    data: dict[str, list] = {"low": [], "high": [], "y": [], "part": []}
    for name in (name for name in _IN_STEP if name in times.parts):
        values = times.parts[name]
        for at in np.array_split(np.arange(len(values)), min(len(values), _MOST_BARS)):
            counts = times.counts[at]
            data["low"].append(int(times.last[at[0]] - counts[0]))
            data["high"].append(int(times.last[at[-1]]))
            data["y"].append(rounded(1e3 * float(np.average(values[at], weights=counts))))
            data["part"].append(name)
    spec = charts.stacked_intervals("step", "ms per step", "part", order=_IN_STEP)
    return Chart("Time per step", spec, data, description)
