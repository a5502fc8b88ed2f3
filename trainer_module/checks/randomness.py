"""Find random numbers that no seed determines: such runs cannot be repeated or resumed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

import tensorflow as tf
from tensorflow.python.framework import op_def_registry
from tensorflow.python.ops import gen_stateless_random_ops_v2

# Operations that draw from a state of the kernel or of a tf.random.Generator, so that the result
# depends on the number of earlier draws. Random layers of Keras use stateless operations.
_DRAWS = re.compile(
    "NonDeterministicInts|(?!Stateless).*(Random|Multinomial|Normal|Rng|Sampl|Uniform)"
)

# Operations whose seed is an input, as Keras uses them.
_STATELESS = ("StatelessRandom", "StatelessTruncated", "StatelessParameterized", "StatelessMulti")

# TensorFlow's functions that draw numbers of a shape from a seed, and their operations.
_BY_SHAPE = {
    "stateless_random_normal_v2": "StatelessRandomNormalV2",
    "stateless_random_uniform_full_int_v2": "StatelessRandomUniformFullIntV2",
    "stateless_random_uniform_int_v2": "StatelessRandomUniformIntV2",
    "stateless_random_uniform_v2": "StatelessRandomUniformV2",
    "stateless_truncated_normal_v2": "StatelessTruncatedNormalV2",
}


def find_uncontrolled_draw(graph: tf.Graph) -> str | None:
    """Return the name of an operation whose numbers `draws_by_row` does not determine, or None."""
    # The operations StatelessRandomGet... only read the seed.
    draws = (n for n in _graph_nodes(graph) if n.op.startswith(_STATELESS) and "Get" not in n.op)
    return next((n.name for n in draws if n.op not in _BY_SHAPE.values()), None)


@contextlib.contextmanager
def draws_by_row(count: tf.Tensor, start: tf.Tensor, total: tf.Tensor) -> Iterator[None]:
    """Draw the numbers of all rows in a traced function, and use those of a part of the rows.

    Args:
        count: Number of rows of the part, which the trace does not know.
        start: Place of its first row among all rows.
        total: Number of all rows.
    """

    def by_row(draw: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
        def draw_part(shape: tf.Tensor, *args: object, **kwargs: object) -> tf.Tensor:
            drawn = draw(shape, *args, **kwargs)
            # The trace knows the size of each axis that does not depend on the number of rows.
            axes = [size is None for size in drawn.shape]
            if not any(axes):
                return drawn
            kwargs.pop("name", None)  # names are unique in a graph
            shape = tf.cast(shape, tf.int32)
            whole = draw(tf.where(axes, shape // count * total, shape), *args, **kwargs)
            return tf.slice(whole, tf.where(axes, shape // count * start, 0), shape)

        return draw_part

    functions = vars(gen_stateless_random_ops_v2)
    kept = {name: functions[name] for name in _BY_SHAPE}
    functions.update((name, by_row(draw)) for name, draw in kept.items())
    try:
        yield
    finally:
        functions.update(kept)


def _graph_nodes(graph: tf.Graph) -> list[tf.compat.v1.NodeDef]:
    """Return the operations of a traced function and of the functions that it calls."""
    definition = graph.as_graph_def()
    return [*definition.node, *(n for f in definition.library.function for n in f.node_def)]


def find_stateful_draw(graph: tf.Graph) -> tuple[str, str] | None:
    """Return (type, name) of an operation that draws random numbers without a seed, or None.

    The search includes the functions that the traced function calls.
    """
    definition = graph.as_graph_def()
    functions = {f.signature.name: f.node_def for f in definition.library.function}
    return next(_stateful_draws(definition.node, "", functions, set()), None)


def reject_stateful_draws(graph: tf.Graph) -> None:
    """Check that a traced micro-batch draws random numbers only from seeds.

    Raises:
        ValueError: The graph draws random numbers from other state, as tf.random.normal and
            tf.nn.dropout do.
    """
    draw = find_stateful_draw(graph)
    if draw is not None:
        kind, name = draw
        raise ValueError(
            f"the model or its loss draws random numbers with {kind} at {name!r}, from a state "
            "that neither the seed nor a checkpoint determines: the run could not be repeated or "
            "resumed exactly. Use keras.layers.Dropout instead of tf.nn.dropout. In a custom "
            "layer, create self.seeds = keras.random.SeedGenerator(seed) in __init__ and call "
            "keras.random.normal(shape, seed=self.seeds) instead of tf.random.normal."
        )


def _stateful_draws(
    nodes: Iterable[tf.compat.v1.NodeDef],
    scope: str,
    functions: Mapping[str, Iterable[tf.compat.v1.NodeDef]],
    seen: set[str],
) -> Iterator[tuple[str, str]]:
    """Yield (type, name) of each stateful draw, including those in branches, loops and calls."""
    for node in nodes:
        definition = op_def_registry.get(node.op)  # None for a function
        if _DRAWS.match(node.op) and definition is not None and definition.is_stateful:
            yield node.op, scope + node.name
        for called in _called_functions(node):
            if called in functions and called not in seen:
                seen.add(called)
                yield from _stateful_draws(
                    functions[called], f"{scope}{node.name}/", functions, seen
                )


def _called_functions(node: tf.compat.v1.NodeDef) -> Iterator[str]:
    yield node.op
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        yield from (function.name for function in value.list.func)


# Operations that round no value, or each one alone.
_NO_SUMS = {"Cast", "ConcatV2", "Const", "ExpandDims", "GatherV2", "Identity", "Pack"}
_NO_SUMS |= {"Placeholder", "ReadVariableOp", "Reshape", "Shape", "StridedSlice", "Transpose"}


def rounding_tolerance(graph: tf.Graph) -> float:
    """Return the relative tolerance by the least precise dtype in which the graph adds up.

    In a batch of another size, a row uses other kernels and is rounded differently (on GPUs to the
    10 bits of TF32).
    """
    nodes = (node for node in _graph_nodes(graph) if node.op not in _NO_SUMS)
    used = {value.type for node in nodes for value in node.attr.values()}
    if used & {tf.bfloat16.as_datatype_enum, tf.float16.as_datatype_enum}:
        return 5e-2
    if tf.float32.as_datatype_enum in used:
        return 1e-3 if tf.config.list_physical_devices("GPU") else 1e-4
    return 1e-8
