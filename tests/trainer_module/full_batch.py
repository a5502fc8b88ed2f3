"""The ground truth: one device, one full batch, a plain GradientTape."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

ROWS = 11


def mlp(**options) -> keras.Model:
    """Two dense layers over 5 features; options go to the first."""
    return keras.Sequential(
        [
            keras.Input((5,), dtype=keras.config.floatx()),
            keras.layers.Dense(6, activation="tanh", **options),
            keras.layers.Dense(1),
        ]
    )


def embeddings() -> keras.Model:
    """Ids through a table that both of two columns share (IndexedSlices, tied weights)."""
    ids = keras.Input((2,), dtype="int64")
    table = keras.layers.Embedding(7, 3)
    return keras.Model(ids, keras.layers.Dense(1)(keras.layers.Flatten()(table(ids))))


def layer_norm() -> keras.Model:
    """A normalisation over features, which is allowed: it knows no batch."""
    x = keras.Input((5,), dtype=keras.config.floatx())
    hidden = keras.layers.LayerNormalization()(keras.layers.Dense(4)(x))
    return keras.Model(x, keras.layers.Dense(1)(hidden))


def separable_convolution() -> keras.Model:
    """A depthwise-separable convolution over 6 x 6 images."""
    x = keras.Input((6, 6, 2), dtype=keras.config.floatx())
    hidden = keras.layers.SeparableConv2D(3, 3, activation="relu")(x)
    return keras.Model(x, keras.layers.Dense(1)(keras.layers.GlobalAveragePooling2D()(hidden)))


def two_in_two_out() -> keras.Model:
    """Two named inputs and two named outputs, of which the loss is given as a function."""
    a = keras.Input((3,), name="a", dtype=keras.config.floatx())
    b = keras.Input((2,), name="b", dtype=keras.config.floatx())
    hidden = keras.layers.Dense(4, activation="tanh")(keras.layers.Concatenate()([a, b]))
    return keras.Model(
        {"a": a, "b": b},
        {"p": keras.layers.Dense(1)(hidden), "q": keras.layers.Dense(3)(hidden)},
    )


def batch(kind: str, rows: int = ROWS, seed: int = 0):
    """Features, labels `[rows, 1]`, and weights of which some are zero, for a model's kind."""
    random = np.random.default_rng(seed)
    real = keras.config.floatx()
    labels = random.normal(size=(rows, 1)).astype(real)
    weights = (random.uniform(0.1, 2.0, rows) * (random.uniform(size=rows) > 0.3)).astype(real)
    if kind == "embeddings":
        return random.integers(0, 7, (rows, 2)), labels, weights
    if kind == "separable_convolution":
        return random.normal(size=(rows, 6, 6, 2)).astype(real), labels, weights
    if kind == "two_in_two_out":
        features = {
            "a": random.normal(size=(rows, 3)).astype(real),
            "b": random.normal(size=(rows, 2)).astype(real),
        }
        return features, {"p": labels, "q": random.integers(0, 3, (rows, 1))}, weights
    return random.normal(size=(rows, 5)).astype(real), labels, weights


MODELS = {
    "mlp": mlp,
    "regularised": lambda: mlp(kernel_regularizer="l2", activity_regularizer="l2"),
    "embeddings": embeddings,
    "layer_norm": layer_norm,
    "separable_convolution": separable_convolution,
    "two_in_two_out": two_in_two_out,
}


def loss_for(kind: str):
    """What TrainStep is given."""
    if kind == "two_in_two_out":
        from trainer_module import weighted_loss

        q = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return weighted_loss({"p": "mse", "q": q}, loss_weights={"p": 1.0, "q": 0.5})
    return "mse"


def full_batch_loss(model, kind, features, labels, weights):
    """Σ w l / Σ w + R over the whole batch at once."""
    outputs = model(features, training=True)
    weights = (
        tf.ones(len(next(iter(tf.nest.flatten(labels)))), keras.config.floatx())
        if (weights is None)
        else tf.convert_to_tensor(weights)
    )
    if kind == "two_in_two_out":
        rows = tf.reduce_mean((outputs["p"] - labels["p"]) ** 2, -1)
        logits = tf.nn.sparse_softmax_cross_entropy_with_logits(labels["q"][:, 0], outputs["q"])
        rows = rows + 0.5 * logits
    else:
        rows = tf.reduce_mean((outputs - labels) ** 2, -1)
    loss = tf.reduce_sum(weights * rows) / tf.reduce_sum(weights)
    return tf.add_n([loss, *model.losses])


def full_batch_gradients(model, kind, features, labels, weights):
    """Returns the loss and dense gradients."""
    with tf.GradientTape() as tape:
        loss = full_batch_loss(model, kind, features, labels, weights)
    variables = [v.value for v in model.trainable_variables]
    return loss, [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]


def train(model, optimizer, kind, batches, *, clip_norm=None, ema_momentum=None):
    """Trains by the full-batch gradient; returns the final weights and their averages."""
    averages = [v.numpy() for v in model.trainable_variables]
    for features, labels, weights in batches:
        _, gradients = full_batch_gradients(model, kind, features, labels, weights)
        if clip_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, clip_norm)
        optimizer.apply(gradients, model.trainable_variables)
        if ema_momentum is not None:
            averages = [
                ema_momentum * a + (1 - ema_momentum) * v.numpy()
                for a, v in zip(averages, model.trainable_variables, strict=True)
            ]
    return model.get_weights(), averages


def error(found, expected) -> float:
    """Largest difference, relative to the largest value of each array."""
    return max(
        float(np.max(np.abs(np.asarray(f) - np.asarray(e))) / max(np.max(np.abs(e)), 1e-30))
        for f, e in zip(found, expected, strict=True)
    )
