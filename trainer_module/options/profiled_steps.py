"""Check the steps of a trace."""

from __future__ import annotations

import numbers
from typing import Any

MOST_STEPS = 1000


def check_profiled_steps(value: Any) -> tuple[int, int]:
    """Return the first and the last step of a trace, both included.

    Raises:
        ValueError: They are not two whole numbers from 1 in order, or more than 1,000 steps.
    """
    is_pair = isinstance(value, (list, tuple)) and len(value) == 2
    if not is_pair or not all(
        isinstance(n, numbers.Integral) and not isinstance(n, bool) for n in value
    ):
        raise ValueError("give the first and the last step, such as [100, 110]")
    first, last = value
    if not 1 <= first <= last:
        last = max(1, last)
        raise ValueError(f"use steps from 1 in order, such as [{last}, {last + 10}]")
    if last - first >= MOST_STEPS:
        raise ValueError(f"over 1,000 steps make too large a trace; use [{first}, {first + 10}]")
    return int(first), int(last)
