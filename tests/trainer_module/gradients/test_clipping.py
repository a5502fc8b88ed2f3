"""Norms and clipped sums. Reference: per_example_gradients in float64. Tolerance: 1e-9.

Layers that change the order of rows: a tape for each row in float64, 1e-12.
"""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import TrainStep, clipped_gradient_sum, gradient_norms, per_example_gradients
from trainer_module.gradients.layer_gradients import layers_by_norm_identity
from trainer_module.losses.weighted_loss import as_loss_function
from trainer_module.model.layers import PackedEmbedding
from trainer_module.window.spec import WindowSpec

L, ops = keras.layers, keras.ops
ROWS = 7


def model_of(shape, *layers, dtype="float64"):
    x = hidden = keras.Input(shape, dtype=dtype)
    for layer in layers:
        hidden = layer(hidden)
    return keras.Model(x, L.Dense(1)(L.Flatten()(hidden)))


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
    "few_places": (lambda: model_of((2, 9), L.Dense(8, use_bias=False)), (2, 9), 2),
    "many_places": (lambda: model_of((9, 2), L.Dense(2, activation="relu")), (9, 2), 2),
    "shared": (shared_dense, (5,), 2),
    "packed_embeddings": (packed_embeddings, "ids", 2),
    "convolution": (
        lambda: model_of((6, 2), L.Conv1D(3, 2), L.Dense(3, trainable=False)),
        (6, 2),
        1,
    ),
    "tied": (full_batch.tokens, "tokens", 1),
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
    model = model_of((2, 2), L.LSTM(2))
    random = np.random.default_rng(0)
    data = [
        tf.constant(x)
        for x in (random.normal(size=(4, 2, 2)), random.normal(size=(4, 1)), random.uniform(size=4))
    ]
    check_layers(model, "mse", data, 1)
    features, labels, weights = data
    with tf.GradientTape(persistent=True) as tape:
        losses = weights * (model(features, training=True) - labels)[:, 0] ** 2
    variables = [v.value for v in model.trainable_variables]
    rows = tape.jacobian(losses, variables, experimental_use_pfor=False)
    check_sums(model, "mse", data, [g.numpy() for g in rows])


class Reordered(L.Layer):
    """Applies a function of (dense layer, inputs, training)."""

    def __init__(self, call_dense):
        super().__init__()
        self.call_dense = call_dense
        self.dense = L.Dense(3, activation="tanh")

    def build(self, input_shape):
        self.dense.build(input_shape)

    def call(self, x, training=False):
        return self.call_dense(self.dense, x, training)


def in_order(dense, x, order):
    return ops.take(dense(ops.take(x, order, axis=0)), ops.argsort(order), axis=0)


def flipped_twice(dense, x, training):
    """Two calls; the second one has the rows in place."""
    return dense(ops.flip(dense(ops.flip(x, 0)), 0))


def rolled(dense, x, training):
    return ops.roll(dense(ops.roll(x, 2, 0)), -2, 0)


def sorted_in_training(dense, x, training):
    return in_order(dense, x, ops.argsort(x[:, 0, 0])) if training else dense(x)


def times_first(dense, x, training):
    """There are as many times as rows, so that the shape shows nothing."""
    return ops.transpose(dense(ops.transpose(x, (1, 0, 2))), (1, 0, 2))


def times_of_all_rows(dense, x, training):
    flat = dense(ops.reshape(ops.transpose(x, (1, 0, 2)), (-1, 3)))
    return ops.transpose(ops.reshape(flat, (ROWS, -1, 3)), (1, 0, 2))


def as_function(dense, x, training):
    """Its trace must not keep what a probe replaces."""
    return tf.function(lambda x: rolled(dense, x, training))(x)


def routed(dense, x, training):
    """Rows with a positive first value first, as for experts."""
    numbers, first = tf.range(tf.shape(x)[0]), x[:, 0, 0] > 0
    groups = [tf.boolean_mask(numbers, chosen) for chosen in (first, ~first)]
    return in_order(dense, x, tf.concat(groups, 0))


def one_expert(dense, x, training):
    """Some rows only."""
    places = tf.where(x[:, 0, 0] > 0)
    found = dense(tf.gather_nd(x, places))
    return x + tf.scatter_nd(places, found, tf.shape(x, out_type=tf.int64))


def branches(dense, x, training):
    return tf.cond(x[0, 0, 0] > 0, lambda: dense(x), lambda: dense(-x))


# Layers, and how many layers of the model are computed by the identity.
ORDERS = {
    "fixed": ((flipped_twice, rolled, times_first, times_of_all_rows), 5),
    "by_values": ((sorted_in_training, as_function), 2),
    "row_by_row": ((routed, one_expert), 0),
    "branches": ((branches,), 1),
}


@pytest.mark.parametrize("case", ORDERS)
def test_rows_in_another_order(float64, case):
    functions, by_identity = ORDERS[case]
    model = model_of((ROWS, 3), *map(Reordered, functions))
    random = np.random.default_rng(0)
    x = tf.constant(random.normal(size=(ROWS, ROWS, 3)))
    y = tf.constant(random.normal(size=(ROWS, 1)) * np.arange(1, ROWS + 1)[:, np.newaxis])
    rows, variables = [], [v.value for v in model.trainable_variables]
    for i in range(ROWS):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(x[i : i + 1], training=True) - y[i : i + 1]) ** 2)
        rows.append(np.concatenate([np.ravel(g) for g in tape.gradient(loss, variables)]))
    wanted = np.linalg.norm(rows, axis=1)
    check_layers(model, "mse", [x, y, None], by_identity)
    norms = gradient_norms(model, "mse", x, y)
    np.testing.assert_allclose(norms, wanted, rtol=0, atol=1e-12 * wanted.max())
    clip = float(np.median(wanted))
    total = np.minimum(1, clip / wanted) @ rows
    totals = [clipped_gradient_sum(model, "mse", x, y, clip_norm=clip)]
    before = model.get_weights()
    step = TrainStep(
        model, keras.optimizers.SGD(1.0), "mse", micro_batch_size=ROWS, clip_per_example=clip
    )
    if case == "branches":  # the first row decides for all, which gradients of single rows allow
        with pytest.raises(ValueError, match="depends on the other rows"):
            step((x, y))
    else:
        step((x, y))
        after = model.get_weights()
        totals.append([ROWS * (a - b) for a, b in zip(before, after, strict=True)])
    for found in totals:
        flat = np.concatenate([np.ravel(g) for g in found])
        np.testing.assert_allclose(flat, total, rtol=0, atol=1e-12 * np.abs(total).max())
