"""Models as a user would give them by `model_fn`."""

from __future__ import annotations

import json
import os

import keras


def fare_only(context) -> keras.Model:
    """Takes a part of the features."""
    fare = keras.Input(context.feature_spec["fare_scaled"].shape, name="fare_scaled")
    output = keras.layers.Dense(context.outputs, activation="sigmoid")(fare)
    return keras.Model({"fare_scaled": fare}, output)


def application(context) -> keras.Model:
    """A network of keras.applications from a file, behind layers that augment pictures."""
    photo = keras.Input((32, 32, 3), name="photo", dtype="uint8")
    x = keras.layers.RandomFlip("horizontal", seed=1)(keras.layers.Rescaling(1 / 255)(photo))
    x = keras.layers.RandomTranslation(0.2, 0.2, seed=2)(x)
    x = keras.models.load_model(context.config.model.options["file"])(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    output = keras.layers.Dense(context.outputs, activation="softmax", name="output")(x)
    return keras.Model({"photo": photo}, output)


def not_a_model(context) -> str:
    """A mistake."""
    return "a model"


def takes_the_key(context):
    """A model with an input that is passed through."""
    key = keras.Input((1,), name="ride")
    return keras.Model({"ride": key}, keras.layers.Dense(1, activation="sigmoid")(key))


def blurred(y_true, y_pred, smooth=0.25):
    """A loss as Keras takes it, with an additional parameter."""
    return keras.ops.mean(keras.ops.abs(y_true - y_pred) ** (1.0 + smooth), axis=-1)


def blurred_in_full(labels, outputs, sample_weight):
    """The same with rows of class 1 weighing 3."""
    labels = keras.ops.cast(keras.ops.reshape(labels, (-1, 1)), outputs.dtype)
    weights = 1.0 + 2.0 * labels[:, 0]
    return keras.ops.sum(weights * blurred(labels, outputs)), keras.ops.sum(weights)


def two_outputs(context) -> keras.Model:
    """Wants a label for each of two outputs."""
    fare = keras.Input(context.feature_spec["fare_scaled"].shape, name="fare_scaled")
    heads = {n: keras.layers.Dense(1, activation="sigmoid", name=n)(fare) for n in ("tip", "tolls")}
    return keras.Model({"fare_scaled": fare}, heads)


def fails_on_worker_1(context) -> keras.Model:
    """As a function does that finds something else on another machine."""
    if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
        raise FileNotFoundError("embeddings.npy is not on this machine")
    numbers = keras.Input(context.feature_spec["packed_float"].shape, name="packed_float")
    return keras.Model(
        {"packed_float": numbers}, keras.layers.Dense(1, activation="sigmoid")(numbers)
    )


def both(labels, outputs, sample_weight):
    """A loss of the user's own that takes both."""
    labels = keras.ops.cast(keras.ops.reshape(labels, (-1, 1)), outputs["tip"].dtype)
    error = keras.ops.square(labels - outputs["tip"]) + keras.ops.square(outputs["tolls"])
    return keras.ops.sum(error), keras.ops.cast(keras.ops.shape(labels)[0], error.dtype)
