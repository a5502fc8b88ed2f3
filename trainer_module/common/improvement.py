"""Which way a metric gets better, and whether it did."""

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
    """Returns "min" where a smaller value of the metric is better, else "max".

    Args:
        monitor: The metric's name, from which "auto" infers the mode.
        mode: "min", "max" or "auto".
        field: How `mode` is called where the user sets it, for the error message.

    Raises:
        ValueError: An unknown mode, or "auto" with an unknown name.
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
        f"{field}='auto' does not tell whether a smaller or a larger {monitor!r} is better: use "
        "'min' or 'max'."
    )


def is_better(value: float, best: float, *, mode: Mode, min_delta: float = 0.0) -> bool:
    """Returns whether a metric improved; a NaN never does.

    Args:
        value: The new value.
        best: The best so far; NaN for none.
        mode: "min" or "max".
        min_delta: The least change that counts.
    """
    if math.isnan(value):
        return False
    if math.isnan(best):
        return True
    return value < best - min_delta if mode == "min" else value > best + min_delta
