"""Check values from users: dotted paths, counts, and in which direction a metric improves."""

from __future__ import annotations

import importlib
import math
import operator
from typing import Any, Literal

from shared_core.nearest import nearest
from trainer_module.common.tensors import Json

_SMALLER_IS_BETTER = (
    *("loss", "error", "entropy", "mse", "mae", "mape", "msle"),
    *("hinge", "poisson", "divergence", "cosh", "huber", "false_"),
)
_LARGER_IS_BETTER = (
    *("acc", "auc", "precision", "recall", "score", "specificity", "sensitivity"),
    *("similarity", "correlation", "iou", "true_"),
)


def import_dotted(path: str, *, field: str) -> Any:
    """Return the object at `package.module.name`."""
    module_path, _, name = path.rpartition(".")
    if not module_path:
        raise ValueError(
            f"{field}={path!r} is not a dotted path: write package.module.function, for a module "
            "that Python can import from where the pipeline runs."
        )
    try:
        module = importlib.import_module(module_path)
    except ImportError as error:
        raise ValueError(
            f"{field}={path!r} cannot be imported ({error}): check the spelling, and that the "
            "package is installed or its folder is on PYTHONPATH."
        ) from error
    try:
        return getattr(module, name)
    except AttributeError:
        public = [n for n in dir(module) if not n.startswith("_")]
        raise ValueError(
            f"{field}={path!r}: module {module_path!r} has no {name!r}; {nearest(name, public)}"
        ) from None


def check_positive_int(name: str, value: Json) -> int:
    """Return the value as an int of at least 1, or raise ValueError."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name}={value!r}: use a whole number of at least 1.") from None
    if isinstance(value, bool) or number < 1:
        raise ValueError(f"{name}={value!r}: use at least 1.")
    return number


Mode = Literal["min", "max"]


def better_mode(monitor: str, mode: str = "auto", *, field: str = "mode") -> Mode:
    """Return "min" if a smaller value of the metric is better, otherwise "max"."""
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


def is_better(value: float, best: float, *, mode: Mode) -> bool:
    """Return whether a metric improved; never for a NaN.

    `best` is NaN if there is none yet.
    """
    if math.isnan(value):
        return False
    if math.isnan(best):
        return True
    return value < best if mode == "min" else value > best
