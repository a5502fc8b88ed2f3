"""The ground truth: one device, one full batch, a plain GradientTape."""

from __future__ import annotations

import contextlib

import keras
import numpy as np
import tensorflow as tf

ROWS = 11


@contextlib.contextmanager
def precision(policy: str):
    """Models built in this block compute by that policy, "float64" for its variables too."""
    kept = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64" if policy == "float64" else "float32")
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_floatx(kept[0])
        keras.config.set_dtype_policy(kept[1])


def mlp(units: int = 1, **options) -> keras.Model:
    """Two dense layers over 5 features; options go to the first."""
    return keras.Sequential(
        [
            keras.Input((5,), dtype=keras.config.floatx()),
            keras.layers.Dense(6, activation="tanh", **options),
            keras.layers.Dense(units),
        ]
    )


class Transposed(keras.layers.Layer):
    """Logits by the rows of an embedding table: one variable at both ends of the model."""

    def __init__(self, table):
        super().__init__()
        self.table = table
        self.supports_masking = True

    def call(self, x):
        table = keras.ops.cast(self.table.embeddings, x.dtype)
        return keras.ops.matmul(x, keras.ops.transpose(table))


def tokens(time: int | None = 4) -> keras.Model:
    """The next of 7 tokens, of which 0 is padding that the mask leaves out (tied weights)."""
    ids = keras.Input((time,), dtype="int64")
    table = keras.layers.Embedding(7, 3, mask_zero=True, embeddings_initializer="glorot_uniform")
    hidden = keras.layers.Dense(3, activation="tanh")(table(ids))
    return keras.Model(ids, Transposed(table)(hidden))


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
    """Features, labels, and weights of which some are zero, for a model's kind.

    Weights are one per row, and one per token for `tokens`.
    """
    random = np.random.default_rng(seed)
    real = keras.config.floatx()
    labels = random.normal(size=(rows, 1)).astype(real)
    shape = (rows, 4) if kind == "tokens" else rows
    weights = random.uniform(0.1, 2.0, shape) * (random.uniform(size=shape) > 0.3)
    weights = weights.astype(real)
    if kind == "embeddings":
        return random.integers(0, 7, (rows, 2)), labels, weights
    if kind == "tokens":
        return random.integers(0, 7, (rows, 4)), random.integers(0, 7, (rows, 4)), weights
    if kind == "separable_convolution":
        return random.normal(size=(rows, 6, 6, 2)).astype(real), labels, weights
    if kind == "two_in_two_out":
        features = {
            "a": random.normal(size=(rows, 3)).astype(real),
            "b": random.normal(size=(rows, 2)).astype(real),
        }
        return features, {"p": labels, "q": random.integers(0, 3, (rows, 1))}, weights
    features = random.normal(size=(rows, 5)).astype(real)
    if kind == "binary":
        return features, (labels > 0).astype(real), weights
    if kind == "multiclass":
        return features, random.integers(0, 3, rows), weights
    return features, labels, weights


MODELS = {
    "mlp": mlp,
    "binary": mlp,
    "multiclass": lambda: mlp(3),
    "own_loss": mlp,
    "regularised": lambda: mlp(kernel_regularizer="l2", activity_regularizer="l2"),
    "embeddings": embeddings,
    "tokens": tokens,
    "layer_norm": layer_norm,
    "separable_convolution": separable_convolution,
    "two_in_two_out": two_in_two_out,
}


def own_loss(labels, outputs, sample_weight):
    """Squares that count by the size of the label: neither sum is one over weights alone."""
    outputs = tf.cast(outputs, labels.dtype)
    counted = 1.0 + tf.abs(labels[:, 0])
    if sample_weight is not None:
        counted *= tf.cast(sample_weight, labels.dtype)
    return tf.reduce_sum(counted * (outputs - labels)[:, 0] ** 2), tf.reduce_sum(counted)


def loss_for(kind: str, reduction="weighted_mean"):
    """What TrainStep is given."""
    from trainer_module import weighted_loss

    if kind == "own_loss":
        return own_loss
    classes = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if kind == "two_in_two_out":
        factors = {"p": 1.0, "q": 0.5}
        return weighted_loss({"p": "mse", "q": classes}, loss_weights=factors, reduction=reduction)
    named = {
        "binary": keras.losses.BinaryCrossentropy(from_logits=True),
        "multiclass": classes,
        "tokens": classes,
    }
    return weighted_loss(named.get(kind, "mse"), reduction=reduction)


def full_batch_loss(model, kind, features, labels, weights, reduction="weighted_mean"):
    """Σ w l / Σ w + R over the whole batch at once, or Σ w l / n + R, in plain TensorFlow."""
    outputs = tf.nest.map_structure(
        lambda tensor: tf.cast(tensor, keras.config.floatx()), model(features, training=True)
    )
    losses = [tf.cast(loss, keras.config.floatx()) for loss in model.losses]
    classes = tf.nn.sparse_softmax_cross_entropy_with_logits
    if kind == "own_loss":
        numerator, denominator = own_loss(labels, outputs, weights)
        return tf.add_n([numerator / denominator, *losses])
    if kind == "two_in_two_out":
        rows = tf.reduce_mean((outputs["p"] - labels["p"]) ** 2, -1)
        rows = rows + 0.5 * classes(labels["q"][:, 0], outputs["q"])
    elif kind == "binary":
        rows = tf.nn.sigmoid_cross_entropy_with_logits(labels, outputs)[:, 0]
    elif kind in ("multiclass", "tokens"):
        rows = classes(labels, outputs)
    else:
        rows = tf.reduce_mean((outputs - labels) ** 2, -1)
    counted = tf.cast(features > 0, rows.dtype) if kind == "tokens" else tf.ones_like(rows)
    weights = counted if weights is None else counted * tf.cast(weights, rows.dtype)
    denominator = tf.reduce_sum(weights if reduction == "weighted_mean" else counted)
    return tf.add_n([tf.reduce_sum(weights * rows) / denominator, *losses])


def full_batch_gradients(model, kind, features, labels, weights, **options):
    """Returns the loss and dense gradients."""
    with tf.GradientTape() as tape:
        loss = full_batch_loss(model, kind, features, labels, weights, **options)
    variables = [v.value for v in model.trainable_variables]
    return loss, [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]


def train(model, optimizer, kind, batches, *, clip_norm=None, ema_momentum=None, **options):
    """Trains by the full-batch gradient; returns the final weights and their averages."""
    averages = [v.numpy() for v in model.trainable_variables]
    for features, labels, weights in batches:
        _, gradients = full_batch_gradients(model, kind, features, labels, weights, **options)
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
