"""Models as a user would give them by `model_fn`."""

from __future__ import annotations

import keras


def fare_only(context) -> keras.Model:
    """Takes a part of the features."""
    fare = keras.Input(context.feature_spec["fare_scaled"].shape, name="fare_scaled")
    output = keras.layers.Dense(context.outputs, activation="sigmoid")(fare)
    return keras.Model({"fare_scaled": fare}, output)


def compiled(context) -> keras.Model:
    """Comes from a pipeline that calls `fit`."""
    model = fare_only(context)
    model.compile("sgd", "huber")
    return model


def not_a_model(context) -> str:
    """A mistake."""
    return "a model"


def takes_the_key(context):
    """A model with an input that is passed through."""
    key = keras.Input((1,), name="ride")
    return keras.Model({"ride": key}, keras.layers.Dense(1, activation="sigmoid")(key))
