"""none: every bit as it is."""

from __future__ import annotations

from typing import Any

import numpy as np


def test_nothing_changes(scaled_by: Any) -> None:
    x = np.asarray([[-0.0], [1e-300], [1.7976931348623157e308]])
    assert scaled_by("none", x).tobytes() == x.tobytes()
