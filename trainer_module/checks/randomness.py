"""Find random numbers that no seed determines: such runs cannot be repeated or resumed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import tensorflow as tf

# Operations that draw from a state of the kernel or of a tf.random.Generator: the result depends on
# the number of earlier draws. Random layers of Keras use stateless operations.
_DRAWS = frozenset(
    {
        "FixedUnigramCandidateSampler",
        "LearnedUnigramCandidateSampler",
        "LogUniformCandidateSampler",
        "Multinomial",
        "NonDeterministicInts",
        "ParameterizedTruncatedNormal",
        "RandomCrop",
        "RandomGamma",
        "RandomPoisson",
        "RandomPoissonV2",
        "RandomShuffle",
        "RandomStandardNormal",
        "RandomUniform",
        "RandomUniformInt",
        "RngReadAndSkip",
        "RngSkip",
        "SampleDistortedBoundingBox",
        "SampleDistortedBoundingBoxV2",
        "StatefulRandomBinomial",
        "StatefulStandardNormal",
        "StatefulStandardNormalV2",
        "StatefulTruncatedNormal",
        "StatefulUniform",
        "StatefulUniformFullInt",
        "StatefulUniformInt",
        "ThreadUnsafeUnigramCandidateSampler",
        "TruncatedNormal",
        "UniformCandidateSampler",
    }
)


# Operations that Keras uses, whose seed is an input.
_STATELESS = ("StatelessRandom", "StatelessTruncated", "StatelessParameterized", "StatelessMulti")


def draws_random_numbers(graph: tf.Graph) -> bool:
    """Return whether a traced function draws random numbers from seeds."""
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    return any(node.op.startswith(_STATELESS) for node in nodes)


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
        if node.op in _DRAWS:
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
