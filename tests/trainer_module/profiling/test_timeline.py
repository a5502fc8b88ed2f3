"""How a trace becomes parts; by hand, on a timeline of 100 ms."""

from __future__ import annotations

import pytest

from trainer_module.profiling.timeline import (
    _PARTS,
    _TraceEvent,
    divide_wall_time,
    read_trace,
)
from trainer_module.window.trace import phase_of

ZERO = 10**21  # picoseconds since 1970 do not fit into 64 bits
BODY = "step.other/while/body/_9/step.other/while"
FORWARD = f"{BODY}/step.forward_2/layer.0/model/layer.1_3/dense/MatMul:MatMul"
BACKWARD = f"{BODY}/gradient_tape/while/step.forward/layer.1/dense/MatMul:MatMul"


def event(name: str, start: int, end: int) -> _TraceEvent:
    """An event from and to a number of milliseconds."""
    return _TraceEvent(name, ZERO + start * 10**9, ZERO + end * 10**9)


EVENTS = [
    event("trainer_module.call", 0, 60),
    event(f"{BODY}/While:While", 2, 58),  # calls a function: not counted
    event("IteratorGetNextAsOptionalOp::DoCompute", 2, 12),
    event("ParseExample/ParseExampleV2:ParseExampleV2", 0, 9),  # beside the step
    event(FORWARD, 12, 20),
    event(FORWARD, 14, 20),
    event(BACKWARD, 20, 30),
    event(f"{BODY}/step.reduction/AddN_1:AddN", 26, 34),
    event(f"{BODY}/step.update_4/cond/then/_5/adam/Sqrt:Sqrt", 36, 40),
    event(f"{BODY}/SelectV2:SelectV2", 50, 58),
    event("trainer_module.open_data", 70, 75),
    event("trainer_module.call", 80, 100),
    event(f"{BODY}/step.compiled/PartitionedCall:PartitionedCall", 80, 100),
    event(FORWARD, 200, 300),  # after the last call
]
EXPECTED = {
    "reading": 10 + 5,
    "forward": 8,
    "backward": 6 + 4 / 2,
    "window (XLA)": 20,
    "reduction over replicas": 4 / 2 + 4,
    "update": 4,
    # Python before the first operation and between the calls, the executor, the step's own.
    "host overhead": 2 + 2 + 2 + (10 + 5) + 8 + 10,
}


def test_each_instant_counts_for_one_part():
    parts = divide_wall_time(EVENTS)
    assert tuple(parts) == _PARTS
    assert {name: 1000 * seconds for name, seconds in parts.items()} == pytest.approx(EXPECTED)
    assert sum(parts.values()) == pytest.approx(0.1)


def test_a_trace_without_a_call_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="no call"):
        divide_wall_time(EVENTS[1:7])
    with pytest.raises(ValueError, match="plugins/profile"):
        read_trace(str(tmp_path))


def test_the_innermost_phase_counts():
    for name, phase in [
        ("step.forward/dense/MatMul", "forward"),
        ("step.forward_1/step.backward/AddN", "backward"),
        ("step.update/gradient_tape/step.update/mul", "update"),  # of a regulariser
        ("gradient_tape/step.forward/dense/MatMul", "backward"),
        ("my_step.forward_pass/MatMul", None),
        ("while/MatMul", None),
    ]:
        assert phase_of(name) == phase
