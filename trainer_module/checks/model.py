"""Check before training that a model's windows are exact."""

from __future__ import annotations

import keras
import tensorflow as tf


def compute_dtypes(model: keras.Model) -> set[str]:
    """Return the compute dtypes of a model's layers, and of a subclassed model.

    Input layers, and models that Keras calls layer by layer, are left out: they have a dtype but
    compute nothing.
    """
    return {
        layer.compute_dtype
        for layer in model._flatten_layers()
        if not isinstance(layer, keras.layers.InputLayer)
        and not type(layer).call.__module__.startswith("keras.src.models.")
    }


def computes_in_float16(model: keras.Model) -> bool:
    """Return whether a layer computes in float16, so that gradients need a loss scale."""
    return "float16" in compute_dtypes(model)


def check_built(model: keras.Model) -> None:
    """Raise ValueError for an object that is not a Keras 3 model, or that is not built.

    Args:
        model: A Keras 3 model.
    """
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
    """Raise ValueError for a model that cannot be trained with exact windows.

    Args:
        model: A built Keras 3 model with trainable variables.
        strategy: The strategy under which the model was created.
    """
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
    for path in _stateful_layers(model):
        raise ValueError(
            f"layer {path!r} is a BatchNormalization in training mode, whose statistics would be "
            "those of one micro-batch on one replica: use LayerNormalization or "
            "GroupNormalization, or freeze it with layer.trainable = False."
        )
    if not strategy.extended.variable_created_in_scope(model.trainable_variables[0].value):
        raise ValueError(
            f"model {model.name!r} was not created under this strategy: build it inside `with "
            "strategy.scope():`."
        )


def _stateful_layers(model: keras.Model) -> list[str]:
    """Return the paths of BatchNormalization layers that would run in training mode."""
    return [
        layer.path
        for layer in model._flatten_layers(include_self=False)
        if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable
    ]


def check_jit_compile(model: keras.Model) -> None:
    """Raise ValueError for a model that must not be compiled with XLA.

    Such a model, one of its layers or the layer's `call` has the reason as an attribute
    `jit_compile_error`.
    """
    for layer in model._flatten_layers():
        for thing in (layer, getattr(layer, "call", None)):
            reason = getattr(thing, "jit_compile_error", None)
            if reason is not None:
                raise ValueError(f"jit_compile=True: {reason}")
