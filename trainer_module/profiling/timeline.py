"""Read a trace of TensorFlow's profiler, and divide its wall time into parts that add up to it."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from trainer_module.window.trace import phase_of

_HOST = "/host:CPU"
_TYPES = {"int64": 3, "string": 9}  # of FieldDescriptorProto.Type
_MESSAGE = 11
# The fields that are needed of tsl/profiler/protobuf/xplane.proto, whose generated classes have
# another module in each TensorFlow: name, number, type; * is repeated.
_FIELDS = {
    "XSpace": "planes 1 XPlane*",
    "XPlane": "name 2 string, lines 3 XLine*, event_metadata 4 Entry*",
    "Entry": "key 1 int64, value 2 XEventMetadata",  # of a map
    "XEventMetadata": "name 2 string",
    "XLine": "timestamp_ns 3 int64, events 4 XEvent*",
    "XEvent": "metadata_id 1 int64, offset_ps 2 int64, duration_ps 3 int64",
}
CALL, OPEN = "trainer_module.call", "trainer_module.open_data"
"""Markers in the trace: a call of the graph, and the creation of an iterator."""
XLA_PART = "window (XLA)"
_PARTS: tuple[str, ...] = (
    "reading",
    "forward",
    "backward",
    XLA_PART,
    "reduction over replicas",
    "update",
    "host overhead",
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
# Operations that call a function, whose operations are counted.
_CALLS = ("PartitionedCall", "StatefulPartitionedCall", "If", "StatelessIf", "While", "Case")
_CALLS += ("StatelessWhile", "StatelessCase", "MapDefun", "RemoteCall")


class _TraceEvent(NamedTuple):
    """What a thread did in an interval."""

    name: str  # such as "step.forward/dense/MatMul:MatMul" for an operation (name:type)
    start: int  # begin, in picoseconds on the clock of the trace
    end: int


def read_trace(folder: str) -> list[_TraceEvent]:
    """Return the events of this machine's threads in all traces below a folder."""
    files = sorted(tf.io.gfile.glob(f"{folder}/plugins/profile/*/*.xplane.pb"))
    if not files:
        raise ValueError(f"{folder} has no plugins/profile/*/*.xplane.pb: TensorFlow wrote none.")
    found: list[_TraceEvent] = []
    for file in files:
        with tf.io.gfile.GFile(file, "rb") as stream:
            found += _host_events(stream.read())
    return found


def _host_events(content: bytes) -> Iterator[_TraceEvent]:
    for plane in _space_class().FromString(content).planes:
        if plane.name != _HOST:
            continue
        names = {entry.key: entry.value.name for entry in plane.event_metadata}
        for line in plane.lines:
            zero = line.timestamp_ns * 1000
            for event in line.events:
                start = zero + event.offset_ps
                name = names.get(event.metadata_id, "")
                yield _TraceEvent(name, start, start + event.duration_ps)


@functools.cache
def _space_class() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    package = "trainer_module_profiling"
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax="proto3"
    )
    for message, fields in _FIELDS.items():
        declared = file.message_type.add(name=message)
        for text in fields.split(", "):
            name, number, kind = text.split()
            of = kind.rstrip("*")
            field = declared.field.add(name=name, number=int(number))
            field.label = field.LABEL_REPEATED if of != kind else field.LABEL_OPTIONAL
            field.type = _TYPES.get(of, _MESSAGE)  # pyright: ignore[reportAttributeAccessIssue]
            if of not in _TYPES:
                field.type_name = f".{package}.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.XSpace"))


def divide_wall_time(events: Sequence[_TraceEvent]) -> dict[str, float]:
    """Return the seconds of each part; they add up to the time from the first marker to the last.

    Each instant counts for exactly one part, or in equal shares for the parts of the operations
    that run at that instant:

    1. operations of the step: the parts of their phases; those of no phase are host overhead
    2. else, the step waits for a batch: reading
    3. else, Python, a call of the graph or TensorFlow's executor is between two operations: host
       overhead
    """
    if not any(event.name == CALL for event in events):
        raise ValueError("the trace has no call of a step: the profiler recorded nothing.")
    markers = [event for event in events if event.name in (CALL, OPEN)]
    begin, end = min(each.start for each in markers), max(each.end for each in markers)
    spans: list[tuple[int, int, int]] = []
    for event in events:
        kind = _part(event.name)
        if kind is None and (_WAIT.fullmatch(event.name) or event.name == OPEN):
            kind = len(_PARTS)
        if kind is not None and event.end > begin and event.start < end:
            spans.append((kind, max(event.start, begin) - begin, min(event.end, end) - begin))
    return _sweep(np.array(spans, np.int64).reshape(-1, 3), end - begin)


def _sweep(spans: np.ndarray, length: int) -> dict[str, float]:
    """Return the seconds of each part from spans (kind, start, end) in picoseconds."""
    times = np.unique(np.concatenate([spans[:, 1], spans[:, 2], [0, length]]))
    active = np.zeros([len(_PARTS) + 1, len(times)], np.int64)
    np.add.at(active, (spans[:, 0], np.searchsorted(times, spans[:, 1])), 1)
    np.add.at(active, (spans[:, 0], np.searchsorted(times, spans[:, 2])), -1)
    active = np.cumsum(active, axis=1)[:, :-1]
    spent = np.diff(times).astype(np.float64) / 1e12
    operations, waits = active[:-1], active[-1] > 0
    busy = operations.sum(axis=0)
    share = np.divide(spent, busy, out=np.zeros_like(spent), where=busy > 0)
    seconds = dict(zip(_PARTS, (operations * share).sum(axis=1).tolist(), strict=True))
    free = busy == 0
    seconds["reading"] += float(spent[free & waits].sum())
    seconds["host overhead"] += float(spent[free & ~waits].sum())
    return seconds


def _part(name: str) -> int | None:
    """Return the index of an operation's part; None for operations of no step."""
    found = _OPERATION.fullmatch(name)
    if found is None or _WAIT.fullmatch(name):
        return None
    phase = phase_of(found[1])
    is_call = found[2] in _CALLS and phase != "compiled"
    return None if phase is None or is_call else _PART_OF_PHASE[phase]
