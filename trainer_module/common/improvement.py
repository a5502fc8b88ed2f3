"""Determine in which direction a metric improves, and whether it did."""

from __future__ import annotations

import math
from typing import Literal

Mode = Literal["min", "max"]

_SMALLER_IS_BETTER = (
    *("loss", "error", "entropy", "mse", "mae", "mape", "msle"),
    *("hinge", "poisson", "divergence", "cosh", "huber", "false_"),
)
_LARGER_IS_BETTER = (
    *("acc", "auc", "precision", "recall", "score", "specificity", "sensitivity"),
    *("similarity", "correlation", "iou", "true_"),
)


def better_mode(monitor: str, mode: str = "auto", *, field: str = "mode") -> Mode:
    """Return "min" if a smaller value of the metric is better, otherwise "max".

    Args:
        monitor: The metric's name, from which "auto" infers the mode.
        mode: "min", "max" or "auto".
        field: Name of the user's setting for `mode`, for the error message.

    Raises:
        ValueError: An unknown mode, or "auto" with an unknown metric name.
    """
    if mode == "min":
        return "min"
    if mode == "max":
        return "max"
    if mode != "auto":
        raise ValueError(f"{field}={mode!r}: use 'min', 'max' or 'auto'.")
    if any(part in monitor.lower() for part in _SMALLER_IS_BETTER):
        return "min"
    if any(part in monitor.lower() for part in _LARGER_IS_BETTER):
        return "max"
    raise ValueError(
        f"{field}='auto': whether a smaller or a larger {monitor!r} is better is unknown. Use "
        "'min' or 'max'."
    )


def is_better(value: float, best: float, *, mode: Mode, min_delta: float = 0.0) -> bool:
    """Return whether a metric improved; never for a NaN.

    Args:
        value: The new value.
        best: The best value so far; NaN if there is none.
        mode: "min" or "max".
        min_delta: Smallest change that counts as an improvement.
    """
    if math.isnan(value):
        return False
    if math.isnan(best):
        return True
    return value < best - min_delta if mode == "min" else value > best + min_delta
