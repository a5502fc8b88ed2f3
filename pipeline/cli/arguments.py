"""Types of arguments that several commands have."""

from __future__ import annotations

import argparse
import math


def positive_seconds(text: str) -> float:
    """Return a number of seconds above 0.

    Raises:
        argparse.ArgumentTypeError: It is none.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not (seconds > 0 and math.isfinite(seconds)):
        raise argparse.ArgumentTypeError(f"{text}: give a number of seconds above 0")
    return min(seconds, 86_400.0)  # threads cannot wait for longer than some years
