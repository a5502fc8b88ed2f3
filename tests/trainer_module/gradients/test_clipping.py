"""Norms and clipped sums. Reference: per_example_gradients in float64. Tolerance: 1e-9."""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import clipped_gradient_sum, gradient_norms, per_example_gradients
from trainer_module.gradients.chunk_gradients import layers_by_norm_identity
from trainer_module.losses.weighted_loss import as_loss_function
from trainer_module.model.default_model import PackedEmbedding
from trainer_module.window.spec import WindowSpec

L = keras.layers
ROWS = 7


def model_of(shape, *layers, dtype="float64"):
    x = hidden = keras.Input(shape, dtype=dtype)
    for layer in layers:
        hidden = layer(hidden)
    return keras.Model(x, L.Dense(1)(L.Flatten()(hidden)))


class Merged(L.Layer):
    """A dense layer over rows and places in one axis: its first axis is not that of the rows."""

    def build(self, input_shape):
        self.dense = L.Dense(2)
        self.dense.build((None, input_shape[-1]))

    def call(self, x):
        flat = self.dense(keras.ops.reshape(x, (-1, x.shape[-1])))
        return keras.ops.reshape(flat, (-1, x.shape[1], 2))


def shared_dense():
    """One layer that is called twice, whose calls count as places."""
    x = keras.Input((5,), dtype="float64")
    layer = L.Dense(5, activation="tanh")
    return keras.Model(x, L.Dense(1)(layer(layer(x))))


def packed_embeddings():
    """Two columns with the same ids; the first one has two ids less, which count as its last."""
    ids = keras.Input((2,), dtype="int64")
    table = PackedEmbedding([5, 7], 3, starts=[0, 0])
    return keras.Model(ids, L.Dense(1)(table(ids)))


# Model, its features, and how many layers are computed by the identity.
CASES = {
    "no_bias": (lambda: model_of((5,), L.Dense(3, "tanh", use_bias=False)), (5,), 2),
    "few_places": (lambda: model_of((2, 9), L.Dense(8)), (2, 9), 2),
    "many_places": (lambda: model_of((9, 2), L.Dense(2, activation="relu")), (9, 2), 2),
    "shared": (shared_dense, (5,), 2),
    "embeddings": (full_batch.embeddings, "ids", 2),
    "packed_embeddings": (packed_embeddings, "ids", 2),
    "convolution": (lambda: model_of((6, 2), L.Conv1D(3, 2), L.Dense(3)), (6, 2), 2),
    "tied": (full_batch.tokens, "tokens", 1),
    "time_distributed": (lambda: model_of((3, 4), L.TimeDistributed(L.Dense(2))), (3, 4), 2),
    "rows_and_places_merged": (lambda: model_of((3, 4), Merged()), (3, 4), 1),
    "dropout": (lambda: model_of((5,), L.Dense(4), L.Dropout(0.5)), (5,), 0),
    "integers": (lambda: model_of((5,), L.Dense(3), dtype="int64"), (5,), 2),
    "frozen": (lambda: model_of((5,), L.Dense(4, trainable=False)), (5,), 1),
}


@pytest.mark.parametrize("case", CASES)
def test_norms_and_clipped_sums(float64, case):
    build, shape, by_identity = CASES[case]
    model = build()
    random = np.random.default_rng(0)
    loss = full_batch.loss_for("tokens") if shape == "tokens" else "mse"
    if shape in ("ids", "tokens"):
        features, labels, weights = full_batch.batch("embeddings" if shape == "ids" else shape)
    else:
        features = random.normal(size=(ROWS, *shape))
        labels, weights = random.normal(size=(ROWS, 1)), random.uniform(0, 2, ROWS)
    data = [tf.constant(x) for x in (features, labels, weights)]
    check_layers(model, loss, data, by_identity)

    @tf.function(autograph=False)
    def of_rows(*data):
        rows = per_example_gradients(model, loss, *data, chunk_size=64)
        return rows, gradient_norms(model, loss, *data, chunk_size=3)

    rows, norms = of_rows(*data)
    wanted = check_sums(model, loss, data, [g.numpy() for g in rows])
    np.testing.assert_allclose(norms, wanted, rtol=1e-9, atol=1e-9 * wanted.max())


def check_layers(model, loss, data, by_identity):
    spec = WindowSpec(model, as_loss_function(loss))
    assert len(layers_by_norm_identity(spec, tuple(data))) == by_identity


def check_sums(model, loss, data, rows):
    """Clip half of the rows; return the norm of each."""
    norms = np.sqrt(sum((g.reshape(len(g), -1) ** 2).sum(1) for g in rows))
    clip = float(np.median(norms))
    factors = np.minimum(1, clip / np.maximum(norms, 1e-30))
    sums = tf.function(
        lambda *data: clipped_gradient_sum(model, loss, *data, clip_norm=clip, chunk_size="auto"),
        autograph=False,
    )(*data)
    assert full_batch.error(sums, [np.tensordot(factors, g, 1) for g in rows]) < 1e-9
    return norms


def test_clipped_sums_of_an_lstm(float64):
    """Reference: the Jacobian of the rows' losses by a tape; the other functions take longer."""
    model = model_of((3, 4), L.LSTM(3))
    random = np.random.default_rng(0)
    data = [
        tf.constant(x)
        for x in (random.normal(size=(7, 3, 4)), random.normal(size=(7, 1)), random.uniform(size=7))
    ]
    check_layers(model, "mse", data, 1)
    features, labels, weights = data
    with tf.GradientTape(persistent=True) as tape:
        losses = weights * (model(features, training=True) - labels)[:, 0] ** 2
    variables = [v.value for v in model.trainable_variables]
    rows = tape.jacobian(losses, variables, experimental_use_pfor=False)
    check_sums(model, "mse", data, [g.numpy() for g in rows])


def test_no_rows_have_no_norms():
    data = [x[:0] for x in full_batch.batch("mlp")]
    assert gradient_norms(full_batch.mlp(), "mse", *data, chunk_size=2).shape == (0,)
    sums = clipped_gradient_sum(full_batch.mlp(), "mse", *data, chunk_size=2, clip_norm=1.0)
    assert all(np.all(total == 0) for total in sums)
