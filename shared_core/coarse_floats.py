"""Columns whose values are too close to each other for float32, as tf.Example holds floats."""

from __future__ import annotations

import math

from shared_core.run_warning import RunWarning

STEPS = 64  # a column with fewer steps of float32 between its ends gets a warning
LABEL_STEPS = 10_000  # the same of a label: its metrics are often far smaller than its range
_WHOLE = 1.0  # a constant column gets one where float32 holds whole numbers alone
_DIGITS = 24  # binary digits of a float32
_SMALLEST = 2.0**-149  # the step between the smallest float32


def coarse_float32(
    name: str,
    low: float,
    high: float,
    *,
    steps: int = STEPS,
    if_constant: str = "",
    keeper: str = "tf.Example",
    source: str = "Transform",
    fix: str = "Write it as an int, in a smaller unit if it has decimals (int64 is exact; "
    "features.derive can then take an offset off and divide), or subtract an offset in the data",
) -> list[RunWarning]:
    """Return a warning if float32 has few numbers from `low` to `high`, else none.

    Args:
        name: The column.
        low: Its smallest value.
        high: Its largest value.
        steps: The fewest numbers between them that are enough.
        if_constant: What becomes of a column with one value.
        keeper: What holds it as float32.
        source: The node or command that found it.
        fix: What to do.
    """
    step = max(math.ldexp(1.0, math.frexp(max(abs(low), abs(high)))[1] - _DIGITS), _SMALLEST)
    constant = low == high and step >= _WHOLE and keeper == "tf.Example"
    if not constant and not 0 < high - low < steps * step:
        return []
    holds = f"one value ({low:g}){if_constant}" if constant else f"{low:.9g} to {high:.9g}"
    return [
        RunWarning(
            what=f"column {name!r} holds {holds}. {keeper} keeps float32, which is {step:g} "
            "coarse there: what varies by less is lost",
            fix=fix,
            column=name,
            number=step,
            source=source,
        )
    ]
