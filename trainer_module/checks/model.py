"""Check before training that a model's windows are exact.

Namely dtypes, methods that it overrides for `fit` of Keras and that this trainer does not call, and
state that it updates when called, because a window calls it many times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf

from trainer_module.checks.warn_once import warn_once
from trainer_module.common.tensors import Tensors, Variable, VariableValues


def computes_in_float16(model: keras.Model) -> bool:
    """Return whether a layer computes in float16, so that gradients need a loss scale.

    Input layers, and models that Keras calls layer by layer, have a dtype but compute nothing.
    """
    return any(
        layer.compute_dtype == "float16"
        and not isinstance(layer, keras.layers.InputLayer)
        and not type(layer).call.__module__.startswith("keras.src.models.")
        for layer in model._flatten_layers()
    )


def check_built(model: keras.Model) -> None:
    """Raise ValueError for an object that is not a Keras 3 model, or that is not built."""
    if not isinstance(model, keras.Model):
        raise ValueError(
            f"model={type(model).__module__}.{type(model).__name__} is not a Keras 3 model: build "
            "it with `import keras`. With TF_USE_LEGACY_KERAS=1, as in TFX, tf.keras "
            "is another library."
        )
    if not model.built:
        raise _not_built(model)


def _not_built(model: keras.Model) -> ValueError:
    return ValueError(
        f"model {model.name!r} is not built: give it an Input, or call it on one row in the "
        "strategy's scope first, `model(tf.nest.map_structure(lambda values: values[:1], "
        "features))`, with `import tensorflow as tf`."
    )


def check_model(model: keras.Model, strategy: tf.distribute.Strategy) -> None:
    """Raise ValueError for a model that cannot be trained with exact windows."""
    check_built(model)
    if not model.variables:
        raise _not_built(model)
    if not model.trainable_variables:
        raise ValueError(f"model {model.name!r} has no trainable variables: nothing to train.")
    for variable in model.trainable_variables:
        if not getattr(variable, "overwrite_with_gradient", False):
            continue
        raise ValueError(
            f"variable {variable.path!r} is overwritten with its gradient, as in float8 "
            "quantisation: such values cannot be summed over micro-batches. Train in "
            "mixed_bfloat16 and quantise afterwards."
        )
    if not strategy.extended.variable_created_in_scope(model.trainable_variables[0].value):
        raise ValueError(
            f"model {model.name!r} was not created under this strategy: build it inside `with "
            "strategy.scope():`."
        )


def why_not_compiled(model: keras.Model, features: Tensors) -> str | None:
    """Return why XLA must not or cannot compile a model with these features; None if it may.

    Such a model, one of its layers or the layer's `call` has the reason as an attribute
    `jit_compile_error`.
    """
    for layer in model._flatten_layers():
        for thing in (layer, getattr(layer, "call", None)):
            reason = getattr(thing, "jit_compile_error", None)
            if reason is not None:
                return reason
    named = features.items() if isinstance(features, Mapping) else [("", features)]
    for name, structure in named:
        if any(tensor.dtype == tf.string for tensor in tf.nest.flatten(structure)):
            which = f"feature {name!r} is" if name else "the features are"
            return (
                f"{which} text, which XLA does not support; convert it to numbers before the "
                "model, in Transform or in the input pipeline (dataset.map)."
            )
    return None


_INSTEAD = {
    "compute_loss": (
        "give that loss as loss_fn, a function (labels, outputs, sample_weight) -> (numerator, "
        "denominator); add terms that need the inputs with add_loss in a layer"
    ),
    "train_step": (
        "write the step with accumulate_gradients, mean_gradients and apply_gradients, or move "
        "its computation into the layers and the loss function"
    ),
}


def reject_custom_train_step(model: keras.Model, names: Sequence[str], *, by: str) -> None:
    """Raise ValueError for a model that overrides `compute_loss` or `train_step`."""
    for name in _overridden(model, names):
        raise ValueError(
            f"model {model.name!r} ({type(model).__name__}) overrides {name}, which {by} "
            f"does not call: {_INSTEAD[name]}."
        )


def warn_overrides_ignored(model: keras.Model, names: Sequence[str], *, by: str) -> None:
    """Warn, once per model and method, about overridden methods that are not called."""
    for name in _overridden(model, names):
        warn_once(
            f"model {model.name!r} ({type(model).__name__}) overrides {name}, which {by} "
            "does not call: it has no effect.",
            about=model,
            topic=name,
        )


def _overridden(model: keras.Model, names: Sequence[str]) -> list[str]:
    return [
        name
        for name in names
        if not (getattr(getattr(model, name), "__module__", None) or "").startswith("keras.")
    ]


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
    "GroupNormalization instead of BatchNormalization, or batch_norm of TrainStep, or freeze it by "
    "layer.trainable = False; remove metrics and stateful=True from layers; and create a "
    "keras.random.SeedGenerator in each random layer."
)


def reject_updates(
    model: keras.Model,
    scope: keras.StatelessScope,
    mapping: VariableValues,
    allowed: Sequence[Variable],
) -> None:
    """Raise ValueError if a call of the model updated a Keras variable that is not allowed."""
    before = {id(variable): value for variable, value in mapping}
    updated = {k for k, v in scope.state_mapping.items() if v is not before.get(k)}
    updated -= {id(variable) for variable in allowed}
    if updated:
        known = {id(v): v.path for v in model.variables}
        for layer in model._flatten_layers():
            states = [*layer.metrics_variables, *tf.nest.flatten(getattr(layer, "states", ()))]
            known |= {id(v): f"a state of layer {layer.path!r}" for v in states}
        names = {known.get(key, "a seed or state outside the model") for key in updated}
        raise ValueError(_UPDATES.format(names=", ".join(sorted(names))))
