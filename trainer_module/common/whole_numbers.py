"""Counts that a user gives: whole numbers of at least 1, NumPy's too."""

from __future__ import annotations

import operator
from typing import Any


def whole_number(name: str, value: Any) -> int:
    """Returns the value as an int.

    Raises:
        ValueError: It is none, or below 1.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name}={value!r}: use a whole number of at least 1.") from None
    if isinstance(value, bool) or number < 1:
        raise ValueError(f"{name}={value!r}: use at least 1.")
    return number
