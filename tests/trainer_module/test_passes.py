"""Micro-batches that one pass takes: how many, and that the sums stay the same."""

from __future__ import annotations

import math

import full_batch
import keras
import pytest
import tensorflow as tf

from trainer_module import accumulate_gradients, accumulation, passes, weighted_loss
from trainer_module.passes import micro_batches_per_pass

MIB = 2**20


def attention() -> keras.Model:
    tokens = keras.Input((6, 8))
    mixed = keras.layers.MultiHeadAttention(num_heads=2, key_dim=4)(tokens, tokens)
    hidden = keras.layers.LayerNormalization()(keras.layers.Add()([tokens, mixed]))
    return keras.Model(tokens, keras.layers.Dense(1)(keras.layers.Flatten()(hidden)))


def recurrent() -> keras.Model:
    return keras.Sequential(
        [keras.Input((6, 8)), keras.layers.LSTM(4, use_cudnn=False), keras.layers.Dense(1)]
    )


def bytes_per_row(model: keras.Model) -> float:
    return accumulation.describe(
        model,
        weighted_loss("mse"),
        tf.zeros([2, *model.input_shape[1:]]),
        tf.zeros([2, 1]),
        added_losses="mean",
    ).bytes_per_row


@pytest.mark.parametrize(
    ("size", "expected"),
    [(0, 1), (1, 4), (16 * MIB, 4), (20 * MIB, 3), (33 * MIB, 1), (1024 * MIB, 1), (math.inf, 1)],
)
def test_small_micro_batches_are_taken_together_and_large_ones_are_not(size, expected):
    assert micro_batches_per_pass(size) == expected


def test_a_row_of_a_dense_model_takes_what_its_tensors_say():
    """At least features, both layers' outputs and the hidden gradient; at most 40 such rows."""
    least = 4 * (5 + 6 + 1 + 6)
    assert least <= bytes_per_row(full_batch.mlp()) <= 40 * least


def test_attention_has_a_size_although_its_gradients_have_sums_of_unknown_rank():
    least = 4 * (6 * 8 * 3 + 2 * 6 * 6)
    assert least <= bytes_per_row(attention()) <= 40 * least


def test_a_loop_inside_the_model_has_no_size():
    assert bytes_per_row(recurrent()) == math.inf


@pytest.mark.parametrize("per_pass", [1, 2, 4])
def test_the_loop_takes_that_many_rows_at_a_time_and_the_sums_are_the_same(
    monkeypatch, float64, per_pass
):
    """Reference: all rows in one pass; 23 rows in micro-batches of 2; 1e-12 of the largest."""
    model = full_batch.mlp(kernel_initializer=keras.initializers.GlorotUniform(seed=1))
    features = tf.random.stateless_normal([23, 5], [1, 2], dtype=tf.float64)
    labels = tf.ones([23, 1], tf.float64)
    monkeypatch.setattr(passes, "_MOST_PER_PASS", per_pass)
    rows = []

    def loss(labels, outputs, sample_weight):
        rows.append(outputs.shape[0])
        return weighted_loss("mse")(labels, outputs, sample_weight)

    @tf.function(autograph=False)
    def sums(micro_batch_size):
        return accumulate_gradients(
            model, loss, features, labels, micro_batch_size=micro_batch_size
        )

    expected = sums(23)
    rows.clear()
    found = sums(2)
    assert {2 * per_pass, None} <= set(rows)  # full passes, and the short last one
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        assert one is other is None or full_batch.error([one], [other]) < 1e-12


def test_xla_compiles_one_micro_batch_at_a_time(float64):
    """In passes of four, a window of three micro-batches would have nothing compiled."""
    model = full_batch.mlp()
    rows = []

    def loss(labels, outputs, sample_weight):
        rows.append(outputs.shape[0])
        return weighted_loss("mse")(labels, outputs, sample_weight)

    tf.function(accumulate_gradients, autograph=False)(
        model,
        loss,
        tf.ones([6, 5], tf.float64),
        tf.ones([6, 1], tf.float64),
        micro_batch_size=2,
        jit_compile=True,
    )
    assert 2 in rows
    assert 8 not in rows
