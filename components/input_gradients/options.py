"""The ranges of InputGradients' parameters; imports neither TensorFlow nor TFX."""

from __future__ import annotations

from collections.abc import Sequence

MOST_ROWS = 20_000
MOST_STEPS = 1_000


def check_options(*, rows: int, slices: Sequence[str], steps: int) -> None:
    """Raise ValueError for a parameter that is out of range, or a slice that is named twice."""
    for name, value, most in (("rows", rows, MOST_ROWS), ("steps", steps, MOST_STEPS)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise ValueError(f"{name}={value!r}: use a whole number from 1 to {most:,}.")
    if isinstance(slices, str):
        raise ValueError(f"slices={slices!r}: use a list of columns, [{slices!r}].")
    for name in slices:
        if list(slices).count(name) > 1:
            raise ValueError(f"slices={list(slices)} has {name!r} twice: name each column once.")
