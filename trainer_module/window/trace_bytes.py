"""What a row's activations and their gradients take, read from a trace."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

_LOOPS = ("While", "StatelessWhile")
# What carries tensors from one turn of a loop to another, or to the gradient's loop.
_LISTS = (*_LOOPS, "EmptyTensorList", "TensorList", "Identity", "ZerosLike", "Placeholder")
_STORES = ("TensorListPushBack", "TensorListSetItem")


def bytes_per_row(graph: Any) -> float:
    """Returns the bytes of all tensors of a trace that have a dimension of rows, at one row.

    Of a loop that is what each of its turns keeps for a later one or for the gradient, as many
    times as it turns, and twice what one turn makes. Infinite where the trace does not tell how
    often a loop turns, or has tensors inside of which nothing is known.
    """
    sizes: dict[str, float] = {}
    total = 0.0
    for operation in graph.get_operations():
        # Gradients of broadcasts are sums of a rank that the trace does not know: none is larger
        # than what it sums.
        largest_input = max((sizes.get(tensor.name, 0) for tensor in operation.inputs), default=0)
        for tensor in operation.outputs:
            if tensor.dtype == tf.variant:
                if not operation.type.startswith(_LISTS):
                    return math.inf
            elif tensor.dtype == tf.resource:
                continue
            elif tensor.shape.rank is None:
                sizes[tensor.name] = largest_input
            elif None in tensor.shape.as_list():
                sizes[tensor.name] = math.prod(n or 1 for n in tensor.shape) * tensor.dtype.size
        if operation.type in _LOOPS:
            total += _bytes_of_loop(operation)
        else:
            total += sum(bytes_per_row(inner) for inner in _called(operation))
    return total + sum(sizes.values())


def has_loops(graph: Any) -> bool:
    """Returns whether a trace, or a function that it calls, has a loop."""
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    return any(node.op in _LOOPS for node in nodes)


def _bytes_of_loop(operation: Any) -> float:
    body = _function(operation.graph, operation.get_attr("body").name)
    once, turns = bytes_per_row(body), _turns(operation)
    if turns is None:
        return math.inf
    kept = sum(
        math.prod(n or 1 for n in tensor.shape) * tensor.dtype.size
        for inner in body.get_operations()
        if inner.type in _STORES
        for tensor in inner.inputs[-1:]
        if tensor.shape.rank is not None and None in tensor.shape.as_list()
    )
    return turns * kept + 2 * once


def _turns(loop: Any) -> int | None:
    """Returns at most how often a loop turns, its `maximum_iterations`; None where not known."""
    found = _known(loop.inputs[1])
    return found if found is not None and found >= 0 else None


def _known(tensor: Any) -> int | None:
    value = tf.get_static_value(tensor)
    if value is not None:
        return int(value.max())
    # Keras' RNN takes the largest of one number.
    if tensor.op.type in ("Max", "Identity", "Cast"):
        return _known(tensor.op.inputs[0])
    return None


def _called(operation: Any) -> Iterator[Any]:
    """The graphs of functions that an operation calls: branches, and functions not inlined."""
    for value in operation.node_def.attr.values():
        names = [value.func.name] if value.HasField("func") else []
        for name in (*names, *(function.name for function in value.list.func)):
            yield _function(operation.graph, name)


def _function(graph: Any, name: str) -> Any:
    while graph is not None:
        found = graph._get_function(name)
        if found is not None:
            return found.graph
        graph = getattr(graph, "outer_graph", None)
    raise LookupError(name)
