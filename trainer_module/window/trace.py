"""Name the operations of a step by phase, so that a trace of the profiler shows where time goes.

A scope changes the names of operations and nothing else. From a trace follows the memory
of one row's activations and their gradients, and layers can ask for a window's forward pass.
"""

from __future__ import annotations

import contextlib
import contextvars
import math
import re
from collections.abc import Iterator
from typing import Any, Literal, get_args

import tensorflow as tf

_Phase = Literal["forward", "backward", "compiled", "reduction", "update", "other"]

_SCOPE = "step."
_NAMED = re.compile(rf"\b{re.escape(_SCOPE)}({'|'.join(get_args(_Phase))})(?:_\d+)?/")
# The scope in which TensorFlow puts the gradient of an operation, before the operation's own scope.
_GRADIENT = "gradient_tape/"


def phase_scope(phase: _Phase) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which new operations belong to a phase; the innermost phase counts."""
    return tf.name_scope(_SCOPE + phase)


def phase_of(name: str) -> _Phase | None:
    """Return the phase of an operation by its name; None for an operation of no step."""
    found: list[Any] = _NAMED.findall(name)
    if not found:
        return None
    return "backward" if found[-1] == "forward" and _GRADIENT in name else found[-1]


def is_compiled_by_xla() -> bool:
    """Return whether the function that is being traced has `jit_compile=True`, or its caller."""
    graph: Any = tf.compat.v1.get_default_graph()
    while graph is not None:
        context = graph._get_control_flow_context()
        while context is not None:
            if context.IsXLAContext():
                return True
            context = context.outer_context
        graph = getattr(graph, "outer_graph", None)
    return False


_LOOPS = ("While", "StatelessWhile")
# Operations that pass tensors between iterations of a loop, or to the gradient's loop.
_LISTS = (*_LOOPS, "EmptyTensorList", "TensorList", "Identity", "ZerosLike", "Placeholder")
_STORES = ("TensorListPushBack", "TensorListSetItem")


def bytes_per_row(graph: tf.Graph) -> float:
    """Return the size of all tensors of a trace that have a dimension of rows, in bytes per row.

    A loop counts as the tensors that one iteration stores for a later one or for the gradient,
    times the number of iterations, plus twice the tensors that one iteration makes. The result is
    infinite if the trace does not show the number of iterations, has variant tensors of unknown
    content, or calls functions without a graph of Python, as the CTC loss does.
    """
    sizes: dict[str, float] = {}
    total = 0.0
    for operation in graph.get_operations():
        # Gradients of broadcasts are sums of unknown rank: none is larger than its largest input.
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
            called = _called(operation)
            total += sum(math.inf if inner is None else bytes_per_row(inner) for inner in called)
    return total + sum(sizes.values())


def has_loops(graph: tf.Graph) -> bool:
    """Return whether a trace or a function that it calls has a loop."""
    return not operation_types(graph).isdisjoint(_LOOPS)


def operation_types(graph: tf.Graph) -> set[str]:
    """Return the types of the operations of a trace and of all functions that it calls."""
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    return {node.op for node in nodes}


def _bytes_of_loop(operation: tf.Operation) -> float:
    body = _function(operation.graph, operation.get_attr("body").name)
    turns = _known(operation.inputs[1])  # maximum_iterations
    if body is None or turns is None or turns < 0:
        return math.inf
    kept = sum(
        math.prod(n or 1 for n in tensor.shape) * tensor.dtype.size
        for inner in body.get_operations()
        if inner.type in _STORES
        for tensor in inner.inputs[-1:]
        if tensor.shape.rank is not None and None in tensor.shape.as_list()
    )
    return turns * kept + 2 * bytes_per_row(body)


def _known(tensor: tf.Tensor) -> int | None:
    value = tf.get_static_value(tensor)
    if value is not None:
        return int(value.max())
    # The RNN layer of Keras takes the maximum of one number.
    if tensor.op.type in ("Max", "Identity", "Cast"):
        return _known(tensor.op.inputs[0])
    return None


def _called(operation: tf.Operation) -> Iterator[tf.Graph | None]:
    """Yield the graphs of the functions that an operation calls, such as branches."""
    for value in operation.node_def.attr.values():
        names = [value.func.name] if value.HasField("func") else []
        for name in (*names, *(function.name for function in value.list.func)):
            yield _function(operation.graph, name)


def _function(graph: tf.Graph | None, name: str) -> tf.Graph | None:
    while graph is not None:
        found = graph._get_function(name)
        if found is not None:
            return getattr(found, "graph", None)
        graph = getattr(graph, "outer_graph", None)
    return None


_active: contextvars.ContextVar[bool] = contextvars.ContextVar("window_forward_pass", default=False)


@contextlib.contextmanager
def window_forward_pass() -> Iterator[None]:
    """Mark a `with` block as a window's forward pass: layers may then use a custom gradient.

    In `fit`, evaluation and export these layers behave as any other layer.
    """
    token = _active.set(True)
    try:
        yield
    finally:
        _active.reset(token)


def in_window_forward_pass() -> bool:
    """Return whether a window's forward pass is being traced."""
    return _active.get()
