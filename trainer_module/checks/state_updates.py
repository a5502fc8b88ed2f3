"""Reject models that update state when called, because a window calls the model many times."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

from trainer_module.common.tensors import Variable, VariableValues


def find_assignment(graph: tf.Graph) -> str | None:
    """Return the name of a tf.Variable that a traced function assigns to, or None."""
    handles = {id(inner): outer for outer, inner in graph.captures}
    for operation in graph.get_operations():
        if operation.type.startswith(("Assign", "ResourceScatter")):
            handle = handles.get(id(operation.inputs[0]))
            names = [v.name for v in graph.variables if v.handle is handle]
            return names[0] if names else operation.name
    return None


def reject_assignments(graph: tf.Graph) -> None:
    """Raise ValueError if a traced micro-batch assigns to a tf.Variable, which Keras cannot see."""
    name = find_assignment(graph)
    if name is not None:
        raise ValueError(_UPDATES.format(names=name))


_UPDATES = (
    "the model updates {names} while it is called with training=True: state that depends on a "
    "micro-batch would make the result depend on its size. Use LayerNormalization or "
    "GroupNormalization instead of BatchNormalization, or freeze its statistics with "
    "layer.trainable = False; remove metrics and stateful=True from layers; and create a "
    "keras.random.SeedGenerator in each random layer."
)


def reject_updates(
    model: keras.Model,
    scope: keras.StatelessScope,
    mapping: VariableValues,
    seeds: Sequence[Variable],
) -> None:
    """Raise ValueError if a call of the model updated a Keras variable.

    Args:
        model: The model that was called.
        scope: The `keras.StatelessScope` around the call.
        mapping: (variable, value) pairs with which the scope was created.
        seeds: Seed states, which may be updated.
    """
    before = {id(variable): value for variable, value in mapping}
    updated = {k for k, v in scope.state_mapping.items() if v is not before.get(k)}
    updated -= {id(seed) for seed in seeds}
    if updated:
        known = {id(v): v.path for v in model.variables}
        for layer in model._flatten_layers():
            states = [*layer.metrics_variables, *tf.nest.flatten(getattr(layer, "states", ()))]
            known |= {id(v): f"a state of layer {layer.path!r}" for v in states}
        names = {known.get(key, "a seed or state outside the model") for key in updated}
        raise ValueError(_UPDATES.format(names=", ".join(sorted(names))))
