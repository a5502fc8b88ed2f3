"""How the result of a run is marked."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.page.elements import State

STATES: Mapping[str, State] = {
    "blessed": "good",
    "not blessed": "bad",
    "failed": "bad",
    "interrupted": "warning",
}
"""Result of a run -> mark of it on a page."""
