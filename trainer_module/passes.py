"""How many micro-batches one pass through the model takes: small ones are taken together."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

# What a pass may hold that takes several micro-batches, and how many it takes at most: on 2 cores,
# passes of 4 took 0.75 of the time of passes of 1 where these were small, and longer ones gain
# little more.
_BYTES_PER_PASS = 64 * 2**20
_MOST_PER_PASS = 4


def micro_batches_per_pass(size: float) -> int:
    """Returns how many micro-batches one pass through the model takes.

    The size of a micro-batch is there to bound memory. Where several hold next to nothing, passing
    them one by one bounds nothing and leaves cores idle: they are rows of one tensor then, and
    their sums come out of one pass.

    Args:
        size: Bytes that one micro-batch may hold (see `Description`).
    """
    if size <= 0:
        return 1
    return int(max(1, min(_BYTES_PER_PASS // size, _MOST_PER_PASS)))


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
