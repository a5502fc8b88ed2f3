"""Name the operations of a step by phase, so that a trace of the profiler shows where time goes.

A scope changes the names of operations and nothing else.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any, Literal, get_args

import tensorflow as tf

Phase = Literal["forward", "backward", "compiled", "reduction", "update", "other"]

_SCOPE = "step."
_NAMED = re.compile(rf"\b{re.escape(_SCOPE)}({'|'.join(get_args(Phase))})(?:_\d+)?/")
# The scope in which TensorFlow puts the gradient of an operation, before the operation's own scope.
_GRADIENT = "gradient_tape/"


def phase_scope(phase: Phase) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which new operations belong to a phase; the innermost phase counts.

    Args:
        phase: "compiled" for the call of a micro-batch that XLA compiles, forward and backward
            together; "other" for operations that belong to no phase, such as the step's counters.
    """
    return tf.name_scope(_SCOPE + phase)


def phase_of(name: str) -> Phase | None:
    """Return the phase of an operation by its name; None for an operation of no step."""
    found: list[Any] = _NAMED.findall(name)
    if not found:
        return None
    return "backward" if found[-1] == "forward" and _GRADIENT in name else found[-1]
