"""Sums over micro-batches against one full batch.

Reference: a plain GradientTape over the whole batch on one device (full_batch.py), in float64.
Tolerance: 1e-12 of each variable's largest gradient; 2e-6 in float32.
"""

from __future__ import annotations

import functools

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer_module import accumulate_gradients, mean_gradients, weighted_loss

pytestmark = pytest.mark.usefixtures("passes_of_one")


def window_gradients(model, kind, data, micro_batch_size, **options):
    """Return the loss and gradients of one window, traced as in training."""

    @tf.function(autograph=False)
    def run(features, labels, weights):
        total = accumulate_gradients(
            model,
            full_batch.loss_for(kind),
            features,
            labels,
            weights,
            micro_batch_size=micro_batch_size,
            **options,
        )
        return mean_gradients(total, model)

    return run(*data)


@pytest.mark.parametrize(
    ("kind", "micro_batch_size"),
    [("mlp", 4), ("regularised", 1), ("tokens", 64), ("two_in_two_out", 5)],
)
def test_gradients_are_those_of_the_full_batch(float64, kind, micro_batch_size):
    """12 rows: three times 4; one by one; at once; 5, 5 and 2."""
    model = full_batch.MODELS[kind]()
    data = full_batch.batch(kind, 12)
    loss, gradients = window_gradients(model, kind, data, micro_batch_size)
    expected_loss, expected = full_batch.full_batch_gradients(model, kind, *data)
    assert full_batch.error([loss], [expected_loss]) < 1e-12
    assert full_batch.error(gradients, expected) < 1e-12


@pytest.mark.parametrize("table_rows", [12, 13])
def test_tables_smaller_and_larger_than_what_is_looked_up(float64, table_rows):
    """Four rows of three ids look up 12 rows; two of the ids are seen again and again."""
    ids = np.random.default_rng(0).integers(0, 2, [12, 3])
    ids[:, 2] = table_rows - 1
    x = keras.Input((3,), dtype="int64")
    table = keras.layers.Embedding(table_rows, 2, embeddings_initializer="glorot_uniform")
    model = keras.Model(x, keras.layers.Dense(1)(keras.layers.Flatten()(table(x))))
    data = (
        tf.constant(ids),
        tf.reshape(tf.linspace(tf.constant(-1.0, tf.float64), 2.0, 12), [12, 1]),
    )
    total = tf.function(accumulate_gradients)(model, "mse", *data, micro_batch_size=4)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((model(data[0]) - data[1]) ** 2)
    expected = tape.gradient(loss, [v.value for v in model.trainable_variables])
    expected = [tf.convert_to_tensor(g) for g in expected]
    assert full_batch.error(total.gradients, expected) < 1e-12


@functools.cache
def linear() -> keras.Model:
    return keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])


@settings(max_examples=15)
@given(
    rows=st.integers(1, 13),
    micro_batch_size=st.integers(1, 16),
    seed=st.integers(0, 2**16),
    weighted=st.booleans(),
    reduction=st.sampled_from(["weighted_mean", "mean"]),
)
def test_any_cut_of_any_batch(rows, micro_batch_size, seed, weighted, reduction):
    """Float32; rows, cut, weights (some zero) and reduction are drawn."""
    random = np.random.default_rng(seed)
    w = (random.normal(size=(5, 1)) / 3).astype("float32")
    model = linear()
    model.set_weights([w, np.zeros(1, "float32")])
    features, labels, weights = full_batch.batch("mlp", rows, seed)
    weights = weights if weighted else None
    total = accumulate_gradients(
        model,
        weighted_loss("mse", reduction=reduction),
        *map(tf.constant, (features, labels)),
        None if weights is None else tf.constant(weights),
        micro_batch_size=micro_batch_size,
    )
    each = np.ones(rows) if weights is None else weights.astype("float64")
    predicted = features.astype("float64") @ w.astype("float64")
    residual = predicted - labels
    slope = features.astype("float64").T @ (2 * each[:, None] * residual)
    denominator = each.sum() if reduction == "weighted_mean" else rows
    # Of what is rounded: a prediction and a label that nearly cancel leave a small residual.
    terms = np.abs(predicted).max() + np.abs(labels).max()
    scale = np.abs(features).max() * terms * max(each.sum(), 1.0)
    np.testing.assert_allclose(float(total.denominator), denominator, rtol=2e-6)
    np.testing.assert_allclose(total.gradients[0], slope, atol=2e-6 * scale)


def test_sequences_of_one_feature(float64):
    """The trace forgets the kernel's axis of 1. Reference: GradientTape over all rows; 1e-12."""
    keras.utils.set_random_seed(0)
    tokens = keras.Input((None, 1))
    hidden = keras.layers.GlobalAveragePooling1D()(keras.layers.Dense(3, "tanh")(tokens))
    model = keras.Model(tokens, keras.layers.Dense(1)(hidden))
    x = tf.random.stateless_normal([12, 4, 1], [1, 2], dtype=tf.float64)
    y = tf.reduce_sum(x, 1)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    expected = tape.gradient(loss, [v.value for v in model.trainable_variables])

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None, 1], tf.float64),
            tf.TensorSpec([None, 1], tf.float64),
        ],
        autograph=False,
    )
    def run(x, y):
        return mean_gradients(accumulate_gradients(model, "mse", x, y, micro_batch_size=5), model)

    _, found = run(x, y)
    assert full_batch.error(found, expected) < 1e-12


def test_sums_of_16_bit_gradients_are_kept_in_32():
    """Pitfall: bfloat16 counts to 256, where adding 1 changes nothing any more. Exact."""
    with full_batch.precision("bfloat16"):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, use_bias=False)])
    assert float(tf.constant(256, tf.bfloat16) + 1) == 256

    def loss(labels, outputs, sample_weight):
        return tf.reduce_sum(tf.cast(outputs, tf.float32)), tf.reduce_sum(labels)

    @tf.function(autograph=False)
    def run(features, labels):
        return accumulate_gradients(model, loss, features, labels, micro_batch_size=1)

    total = run(tf.ones([600, 2]), tf.ones([600, 1]))
    assert float(total.denominator) == 600
    np.testing.assert_array_equal(total.gradients[0], np.full((2, 1), 600.0))


def test_micro_batches_without_rows_are_rejected():
    features, labels, _ = map(tf.constant, full_batch.batch("mlp"))
    with pytest.raises(ValueError, match="micro_batch_size=0: use at least 1"):
        accumulate_gradients(full_batch.mlp(), "mse", features, labels, micro_batch_size=0)
