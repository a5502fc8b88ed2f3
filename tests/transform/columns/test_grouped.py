"""Names of what a list of fixed length becomes."""

from __future__ import annotations

from transform.columns.grouped import positions


def test_each_position_has_a_name() -> None:
    assert positions("v", 3) == ("v_0", "v_1", "v_2")
    assert positions("v", 0) == ()
