"""Read the events of a trace that TensorFlow's profiler wrote (`*.xplane.pb`).

The generated classes of the format have another module in each TensorFlow, so the few fields that
are needed are declared here; others are skipped. The format is that of
`tsl/profiler/protobuf/xplane.proto`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow as tf

_HOST = "/host:CPU"
_INT64, _STRING, _MESSAGE = 3, 9, 11  # of FieldDescriptorProto.Type
# Message -> field -> (number, type, repeated message or None).
_FIELDS: dict[str, dict[str, tuple[int, int, str | None]]] = {
    "XSpace": {"planes": (1, _MESSAGE, "XPlane")},
    "XPlane": {
        "name": (2, _STRING, None),
        "lines": (3, _MESSAGE, "XLine"),
        "event_metadata": (4, _MESSAGE, "MetadataEntry"),
    },
    # A map field is a repeated message of key and value.
    "MetadataEntry": {"key": (1, _INT64, None), "value": (2, _MESSAGE, "XEventMetadata")},
    "XEventMetadata": {"name": (2, _STRING, None)},
    "XLine": {
        "name": (2, _STRING, None),
        "timestamp_ns": (3, _INT64, None),
        "events": (4, _MESSAGE, "XEvent"),
    },
    "XEvent": {
        "metadata_id": (1, _INT64, None),
        "offset_ps": (2, _INT64, None),
        "duration_ps": (3, _INT64, None),
    },
}
_SINGLE = ("value",)


class TraceEvent(NamedTuple):
    """An interval of one thread.

    Attributes:
        name: Such as "step.forward/dense/MatMul:MatMul" for an operation (name:type).
        thread: Name of the thread.
        start: Begin, in picoseconds on the clock of the trace.
        end: End.
    """

    name: str
    thread: str
    start: int
    end: int


def read_trace(folder: str) -> list[TraceEvent]:
    """Return the events of this machine's threads in all traces below a folder.

    Raises:
        ValueError: There is no trace.
    """
    files = sorted(tf.io.gfile.glob(f"{folder}/plugins/profile/*/*.xplane.pb"))
    if not files:
        raise ValueError(f"{folder} has no plugins/profile/*/*.xplane.pb: TensorFlow wrote none.")
    found: list[TraceEvent] = []
    for file in files:
        with tf.io.gfile.GFile(file, "rb") as stream:
            found += _host_events(stream.read())
    return found


def _host_events(content: bytes) -> Iterator[TraceEvent]:
    for plane in _space_class().FromString(content).planes:
        if plane.name != _HOST:
            continue
        names = {entry.key: entry.value.name for entry in plane.event_metadata}
        for line in plane.lines:
            zero = line.timestamp_ns * 1000
            for event in line.events:
                start = zero + event.offset_ps
                name = names.get(event.metadata_id, "")
                yield TraceEvent(name, line.name, start, start + event.duration_ps)


@functools.cache
def _space_class() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    package = "trainer_module_profiling"
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax="proto3"
    )
    for message, fields in _FIELDS.items():
        declared = file.message_type.add(name=message)
        for name, (number, kind, of) in fields.items():
            field = declared.field.add(name=name, number=number)
            field.type = kind  # pyright: ignore[reportAttributeAccessIssue]
            is_repeated = of is not None and name not in _SINGLE
            field.label = field.LABEL_REPEATED if is_repeated else field.LABEL_OPTIONAL
            if of is not None:
                field.type_name = f".{package}.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.XSpace"))
