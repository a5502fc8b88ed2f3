"""How the result of a run is marked."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.page.elements import State
from pipeline.report.run_record import RunRecord

_STATES: Mapping[str, State] = {
    "blessed": "good",
    "not blessed": "bad",
    "failed": "bad",
    "interrupted": "warning",
}


def state_of(record: RunRecord) -> State:
    """Return the mark of a run's result on a page."""
    return "warning" if record.warnings else _STATES.get(record.result, "")
