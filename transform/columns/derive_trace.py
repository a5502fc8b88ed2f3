"""Tracing `derive`: its operations get the names of the columns that are computed from them.

An operation that fails inside Beam is known there by its name alone: TFT runs a saved graph, which
keeps neither lines of Python nor what an operation was for. `StringToNumber` says nothing;
`derive/minutes.hours/StringToNumber` names the step and the derived columns.

Which column an operation is for is known only after all of them were made. So the function is
traced into a separate graph, whose operations are renamed on the way into Transform's.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from transform.aliases import Columns, ColumnTensor

SCOPE = "derive"
_NAMED = 3  # columns in the name of an operation


def traced(function: Callable[[dict[str, ColumnTensor]], object], inputs: Columns) -> object:
    """Call `function` on `inputs`, in the graph that they are of.

    Args:
        function: dict of columns -> dict of new columns.
        inputs: name -> Tensor, SparseTensor or RaggedTensor of the graph that is being built.

    Returns:
        What the function returns, its operations below `derive/<columns>/`. Below `derive/` alone
        where they cannot be renamed: the function uses state (a lookup table, a variable, a
        constant of its module), or returns no dict of tensors.
    """
    if not tf.executing_eagerly():
        specs = {name: tf.type_spec_from_value(tensor) for name, tensor in inputs.items()}
        concrete = _tf_function(function).get_concrete_function(specs)
        outputs = concrete.structured_outputs
        if not concrete.captured_inputs and _is_renamable(outputs):
            return _imported(concrete, outputs, inputs)
    with tf.name_scope(SCOPE):
        return function(dict(inputs))


@functools.lru_cache(maxsize=1)
def _tf_function(
    function: Callable[[dict[str, ColumnTensor]], object],
) -> tf.types.experimental.GenericFunction:
    """Return the function that keeps its traces: TFT traces `preprocessing_fn` six times."""
    return tf.function(function, autograph=False)


def _is_renamable(outputs: object) -> bool:
    if not isinstance(outputs, Mapping) or not all(isinstance(name, str) for name in outputs):
        return False
    kinds = (tf.Tensor, tf.SparseTensor, tf.RaggedTensor)
    return all(isinstance(tensor, kinds) for tensor in outputs.values())


def _imported(
    concrete: tf.types.experimental.ConcreteFunction, outputs: Columns, inputs: Columns
) -> Columns:
    graph_def = concrete.graph.as_graph_def()
    parts = {name: _parts(tensor) for name, tensor in outputs.items()}
    place = dict(zip((t.name for t in concrete.inputs), _parts(dict(inputs)), strict=True))
    given = {name.partition(":")[0]: name for name in place}
    names = {
        node: f"{scope}/{node}" if scope else node
        for node, scope in _scopes(graph_def, parts).items()
    }
    used: dict[str, tf.Tensor] = {}
    for node in [node for node in graph_def.node if node.name in given]:
        graph_def.node.remove(node)
    for node in graph_def.node:
        node.name = names[node.name]
        if "_class" in node.attr:  # colocation, by name, of what runs on one processor anyway
            del node.attr["_class"]
        for i, source in enumerate(node.input):
            if source in given:
                used[given[source]] = place[given[source]]
            else:
                control, producer, output = _split(source)
                node.input[i] = f"{control}{names[producer]}{output}"
    wanted = [f"{names[t.op.name]}:{t.value_index}" for each in parts.values() for t in each]
    found = iter(tf.graph_util.import_graph_def(graph_def, used, wanted, name=SCOPE))
    result = {}
    for name, tensors in parts.items():
        made = [next(found) for _ in tensors]
        for tensor, original in zip(made, tensors, strict=True):
            tensor.set_shape(original.shape)  # what the function itself set is not in the graph
        result[name] = tf.nest.pack_sequence_as(outputs[name], made, expand_composites=True)
    return result


def _scopes(graph_def: graph_pb2.GraphDef, parts: Mapping[str, list[tf.Tensor]]) -> dict[str, str]:
    """Return the columns that each node is for, as a name scope; empty where none needs it."""
    columns: dict[str, set[str]] = {node.name: set() for node in graph_def.node}
    for name, tensors in parts.items():
        for tensor in tensors:
            columns[tensor.op.name].add(name)
    for node in reversed(graph_def.node):  # in order of creation, so whoever consumes comes first
        for source in node.input:
            columns[_split(source)[1]] |= columns[node.name]
    return {
        node: _scope([name for name in parts if name in found]) for node, found in columns.items()
    }


def _scope(columns: list[str]) -> str:
    shown = [re.sub(r"[^A-Za-z0-9_]", "_", name) for name in columns[:_NAMED]]
    more = len(columns) - len(shown)
    return ".".join([*shown, f"and_{more}_more"] if more else shown)


def _split(source: str) -> tuple[str, str, str]:
    """Split `^name` or `name:1` into (`^` or empty, name, `:1` or empty)."""
    control = "^" if source.startswith("^") else ""
    name, colon, output = source.removeprefix("^").partition(":")
    return control, name, colon + output


def _parts(tensor: Any) -> list[tf.Tensor]:
    return tf.nest.flatten(tensor, expand_composites=True)
