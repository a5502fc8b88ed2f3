"""Divide the wall time of traced steps into parts that add up to it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trainer_module.profiling.layer_scopes import layer_of
from trainer_module.profiling.xplane import TraceEvent
from trainer_module.window.trace import phase_of

CALL, OPEN = "trainer_module.call", "trainer_module.open_data"
"""Markers in the trace: a call of the graph, and the creation of an iterator."""

XLA_PART = "forward and backward (XLA)"
_PARTS: tuple[str, ...] = (
    "reading",
    "forward",
    "backward",
    XLA_PART,
    "reduction over replicas",
    "update",
    "host overhead",
    "idle",
)
_PART_OF_PHASE = {
    "forward": 1,
    "backward": 2,
    "compiled": 3,
    "reduction": 4,
    "update": 5,
    "other": 6,
}
_OPERATION = re.compile(r"([^\s:]+):([A-Za-z_]\w*)")
_WAIT = re.compile(r"(?:\S+:)?IteratorGetNext\w*(?:::DoCompute)?")
_EXECUTOR = "ExecutorState::Process"
# Operations that call a function, whose operations are counted.
_CALLS = ("PartitionedCall", "StatefulPartitionedCall", "If", "StatelessIf", "While", "Case")
_CALLS += ("StatelessWhile", "StatelessCase", "MapDefun", "RemoteCall")


class OperationTime(NamedTuple):
    """The operations of one type in one layer and phase.

    Attributes:
        type: Type in TensorFlow, such as "MatMul".
        layer: Name of the Keras layer; in parentheses for operations of no layer.
        phase: Part of the step.
        seconds: Time per step. Operations that run at the same time each count in full.
        count: Number of operations per step.
    """

    type: str
    layer: str
    phase: str
    seconds: float
    count: float


def divide_wall_time(events: Sequence[TraceEvent]) -> dict[str, float]:
    """Return the seconds of each part; they add up to the time from the first marker to the last.

    Each instant counts for exactly one part, or in equal shares for the parts of the operations
    that run at that instant:

    1. operations of the step: the parts of their phases; those of no phase are host overhead
    2. else, the step waits for a batch: reading
    3. else, TensorFlow's executor is active, or Python is between two calls: host overhead
    4. else: idle

    Raises:
        ValueError: The trace has no call of the graph.
    """
    calls = [event for event in events if event.name == CALL]
    if not calls:
        raise ValueError("the trace has no call of a step: the profiler recorded nothing.")
    markers = [event for event in events if event.name in (CALL, OPEN)]
    begin, end = min(each.start for each in markers), max(each.end for each in markers)
    waits, executors = len(_PARTS), len(_PARTS) + 1
    inside = executors + 1
    spans: list[tuple[int, int, int]] = []
    for event in events:
        kind = _part(event.name)
        if kind is None and (_WAIT.fullmatch(event.name) or event.name == OPEN):
            kind = waits
        elif kind is None and event.name == _EXECUTOR:
            kind = executors
        if kind is not None and event.end > begin and event.start < end:
            spans.append((kind, max(event.start, begin) - begin, min(event.end, end) - begin))
    spans += [(inside, *hull) for hull in _hulls(calls, spans, begin)]
    if not spans:
        return {**dict.fromkeys(_PARTS, 0.0), "host overhead": (end - begin) / 1e12}
    return _sweep(np.array(spans, np.int64), end - begin)


def _sweep(spans: np.ndarray, length: int) -> dict[str, float]:
    """Return the seconds of each part from spans (kind, start, end) in picoseconds."""
    times = np.unique(np.concatenate([spans[:, 1], spans[:, 2], [0, length]]))
    active = np.zeros([len(_PARTS) + 3, len(times)], np.int64)
    np.add.at(active, (spans[:, 0], np.searchsorted(times, spans[:, 1])), 1)
    np.add.at(active, (spans[:, 0], np.searchsorted(times, spans[:, 2])), -1)
    active = np.cumsum(active, axis=1)[:, :-1]
    spent = np.diff(times).astype(np.float64) / 1e12
    operations, (waits, executors, inside) = active[: len(_PARTS)], active[len(_PARTS) :] > 0
    busy = operations.sum(axis=0)
    share = np.divide(spent, busy, out=np.zeros_like(spent), where=busy > 0)
    seconds = dict(zip(_PARTS, (operations * share).sum(axis=1).tolist(), strict=True))
    free = busy == 0
    seconds["reading"] += float(spent[free & waits].sum())
    is_idle = free & ~waits & inside & ~executors
    seconds["idle"] += float(spent[is_idle].sum())
    seconds["host overhead"] += float(spent[free & ~waits & ~is_idle].sum())
    return seconds


def _hulls(
    calls: Sequence[TraceEvent], spans: Sequence[tuple[int, int, int]], begin: int
) -> list[tuple[int, int]]:
    """Return the time from the first to the last activity in each call: before it is Python."""
    if not spans:
        return []
    starts = np.sort(np.array([start for _, start, _ in spans]))
    ends = np.sort(np.array([end for _, _, end in spans]))
    found = []
    for call in calls:
        first = np.searchsorted(starts, call.start - begin)
        last = np.searchsorted(ends, call.end - begin, side="right") - 1
        if first < len(starts) and last >= 0 and starts[first] < ends[last]:
            found.append((int(starts[first]), int(ends[last])))
    return found


def most_expensive(
    events: Sequence[TraceEvent], layers: list[str], *, steps: int, count: int
) -> tuple[OperationTime, ...]:
    """Return the operations that took most time in the calls of the graph, the longest first.

    Operations of the data, which run beside the step, have the phase "reading".

    Args:
        events: The trace.
        layers: The names that `layer_scopes` yielded.
        steps: Number of steps in the trace.
        count: Most operations to return.
    """
    times: dict[tuple[str, str, str], list[int]] = {}
    for event in events:
        found, part = _OPERATION.fullmatch(event.name), _part(event.name)
        is_call = part is None and found is not None and found[2] in _CALLS
        if found is None or is_call or _WAIT.fullmatch(event.name):
            continue
        phase = "reading" if part is None else _PARTS[part]
        layer = layer_of(event.name, layers) or _PLACES.get(phase, "(loss and sums)")
        times.setdefault((found[2], layer, phase), []).append(event.end - event.start)
    longest = sorted(times.items(), key=lambda item: -sum(item[1]))[:count]
    return tuple(
        OperationTime(*key, seconds=sum(each) / 1e12 / steps, count=len(each) / steps)
        for key, each in longest
    )


_PLACES = {
    "reading": "(data)",
    "reduction over replicas": "(replicas)",
    "update": "(optimizer)",
    XLA_PART: "(model)",
    "host overhead": "(step)",
}


def _part(name: str) -> int | None:
    """Return the index of an operation's part; None for operations of no step."""
    found = _OPERATION.fullmatch(name)
    if found is None or _WAIT.fullmatch(name):
        return None
    phase = phase_of(found[1])
    is_call = found[2] in _CALLS and phase != "compiled"
    return None if phase is None or is_call else _PART_OF_PHASE[phase]
