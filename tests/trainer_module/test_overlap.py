"""Micro-batches under way together: how many, and that the sums stay the same to the bit."""

from __future__ import annotations

import os

import full_batch
import keras
import pytest
import tensorflow as tf

from trainer_module import accumulate_gradients, accumulation, weighted_loss
from trainer_module.overlap import micro_batches_at_once

MIB = 2**20
MOST = min(4, os.cpu_count() or 1)


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
    [(0, 1), (1, MOST), (33 * MIB, 1), (1024 * MIB, 1), (float("inf"), 1)],
)
def test_small_micro_batches_overlap_and_large_ones_do_not(size, expected):
    assert micro_batches_at_once(size) == expected


def test_a_row_of_a_dense_model_takes_what_its_tensors_say():
    """At least features, both layers' outputs and the hidden gradient; at most 40 such rows."""
    least = 4 * (5 + 6 + 1 + 6)
    assert least <= bytes_per_row(full_batch.mlp()) <= 40 * least


def test_attention_has_a_size_although_its_gradients_have_sums_of_unknown_rank():
    least = 4 * (6 * 8 * 3 + 2 * 6 * 6)
    assert least <= bytes_per_row(attention()) <= 40 * least


def test_a_loop_inside_the_model_has_no_size():
    assert bytes_per_row(recurrent()) == float("inf")


@pytest.mark.parametrize("at_once", [1, 2, 4])
def test_the_loop_has_that_many_under_way_and_the_same_sums(monkeypatch, at_once):
    """Reference: one at a time, bit for bit; 23 rows in micro-batches of 4."""
    model = full_batch.mlp(kernel_initializer=keras.initializers.GlorotUniform(seed=1))
    features, labels = tf.random.stateless_normal([23, 5], [1, 2]), tf.ones([23, 1])

    def run(count):
        monkeypatch.setattr(accumulation, "micro_batches_at_once", lambda size: count)

        @tf.function(autograph=False)
        def sums(features, labels):
            return accumulate_gradients(
                model, weighted_loss("mse"), features, labels, micro_batch_size=4
            )

        graph = sums.get_concrete_function(features, labels).graph
        loops = [op for op in graph.get_operations() if "While" in op.type]
        return [op.get_attr("parallel_iterations") for op in loops], sums(features, labels)

    _, expected = run(1)
    loops, found = run(at_once)
    assert sorted(loops) == [1, at_once]  # the short last micro-batch is alone
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        assert one is other is None or tf.reduce_all(one == other)
