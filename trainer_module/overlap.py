"""How many micro-batches may be under way together: small ones keep several cores busy."""

from __future__ import annotations

import math
import os
from typing import Any

import tensorflow as tf

# Several micro-batches at once may hold this much together, and there is little to gain from more
# of them: on 2 cores 2 took 0.75 of the time of 1, and 4 no less.
_BYTES_AT_ONCE = 64 * 2**20
_MOST_AT_ONCE = 4


def micro_batches_at_once(size: float) -> int:
    """Returns how many micro-batches may be under way together.

    The gradients of two micro-batches do not depend on each other, so that the kernels of small
    ones keep several cores busy; each costs its own activations, so that large ones are held one
    at a time. The sums are the same to the bit: they are added in the micro-batches' order.

    Args:
        size: Bytes that one micro-batch may hold (see `Description`).
    """
    if size <= 0:
        return 1
    return int(max(1, min(_BYTES_AT_ONCE // size, _MOST_AT_ONCE, os.cpu_count() or 1)))


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
