"""How a window's micro-batches pass through the model: small ones together, and two at once."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import tensorflow as tf

# What all passes under way may hold where they are more than one micro-batch. What it gains:
# `ours, one by one` of benchmarks/step_time.py.
_BYTES_AT_ONCE = 128 * 2**20
_MOST_AT_ONCE = 2
_MOST_PER_PASS = 4


class Passes(NamedTuple):
    """How the micro-batches of a window pass through the model.

    The size of a micro-batch is there to bound memory. Where several hold next to nothing, one by
    one they bound nothing and leave cores idle.

    Attributes:
        micro_batches: So many are rows of one pass: 1, 2 or 4. The window's sums are the same to
            rounding.
        at_once: So many passes may be under way, since their gradients do not depend on each other.
            The sums are the same to the bit: they are added in the passes' order.
    """

    micro_batches: int
    at_once: int


def plan_passes(size: float, *, together: bool = True) -> Passes:
    """Returns how micro-batches of a size pass through the model.

    Args:
        size: Bytes that one micro-batch may hold (see `Description`).
        together: Whether one pass may take several.
    """
    if size <= 0:
        return Passes(1, 1)
    room = max(1, min(_BYTES_AT_ONCE // size, _MOST_AT_ONCE * _MOST_PER_PASS))
    at_once = int(min(room, _MOST_AT_ONCE))
    most = min(room // at_once, _MOST_PER_PASS) if together else 1
    return Passes(2 ** int(math.log2(most)), at_once)


def bytes_per_row(graph: Any) -> float:
    """Returns the bytes of all tensors of a trace that have a dimension of rows, at one row."""
    sizes: dict[str, int] = {}
    for operation in graph.get_operations():
        # Gradients of broadcasts are sums of a rank that the trace does not know: none is larger
        # than what it sums.
        largest_input = max((sizes.get(tensor.name, 0) for tensor in operation.inputs), default=0)
        for tensor in operation.outputs:
            if tensor.dtype == tf.variant:
                return math.inf
            if tensor.dtype == tf.resource:
                continue
            if tensor.shape.rank is None:
                sizes[tensor.name] = largest_input
            elif None in tensor.shape.as_list():
                sizes[tensor.name] = math.prod(n or 1 for n in tensor.shape) * tensor.dtype.size
    return sum(sizes.values())
