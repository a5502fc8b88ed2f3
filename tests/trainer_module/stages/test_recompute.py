"""Layers that run again for their gradient: to the bit what they gave before.

Reference: micro_batch_gradients of the model without `recompute`; the norm of the difference is at
most 1e-6 of the gradients', in mixed precision 4e-3 (one rounding of bfloat16: TensorFlow
leaves out casts where it can, others of either graph).
"""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import accumulate_gradients, recompute, weighted_loss
from trainer_module.stages.recompute import recompute_layers
from trainer_module.window.micro_batch import micro_batch_gradients
from trainer_module.window.spec import Batch, StepInputs, WindowSpec
from trainer_module.window.trace import window_forward_pass

L = keras.layers


class Block(L.Layer):
    """Attention and dropout, which is in training mode by the call around it, and a loss added."""

    def __init__(self, attends=True, **options):
        super().__init__(**options)
        self.attention = L.MultiHeadAttention(2, 4, dropout=0.2, seed=5) if attends else None
        self.norm = L.LayerNormalization(dtype="float32")
        self.dropout = L.Dropout(0.4, seed=6)
        self.supports_masking = True

    def build(self, shape):
        if self.attention is not None:
            self.attention.build(shape, shape)
        self.norm.build(shape)

    def call(self, x):
        y = x if self.attention is None else self.attention(x, x)
        y = self.norm(x + self.dropout(y))
        self.add_loss(0.1 * keras.ops.mean(keras.ops.square(y)))
        return keras.ops.cast(y, x.dtype)


def model(recurrent):
    keras.utils.set_random_seed(1)
    ids = keras.Input((4,), dtype="int64")
    x = L.Embedding(7, 8, mask_zero=True, name="table")(ids)
    x = Block(name="block_1")(x)
    if recurrent:
        x = L.LSTM(8, return_sequences=True, dropout=0.2, seed=7, name="lstm")(x)
    top = [L.Dense(8, activity_regularizer="l2"), Block(attends=False, name="inner")]
    x = keras.Sequential(top, name="top")(x)
    return keras.Model(ids, L.Dense(1, dtype="float32")(L.Flatten()(x)))


def sums(model):
    random = np.random.default_rng(0)
    ids, labels = random.integers(0, 7, (11, 4)), random.normal(size=(11, 1)).astype("float32")

    @tf.function(autograph=False)
    def micro_batch():
        return micro_batch_gradients(
            WindowSpec(model, weighted_loss("mse")),
            Batch(tf.constant(ids), tf.constant(labels)),
            StepInputs(random_position=(3, 1)),
            separate=True,
        )

    return micro_batch()


@pytest.mark.parametrize(("policy", "tolerance"), [("float32", 1e-6), ("mixed_bfloat16", 4e-3)])
@pytest.mark.slow
def test_gradients_are_those_of_kept_activations(policy, tolerance):
    with full_batch.precision(policy):
        # One precision shows the loop of the LSTM, which takes long to trace.
        plain, again = (model(recurrent=policy == "float32") for _ in range(2))
    lstm = [layer.name for layer in again.layers if layer.name == "lstm"]
    recompute_layers(again, ["table", "block_1", *lstm, "top", "inner"])
    expected, found = sums(plain), sums(again)
    for name in ("numerator", "denominator", "added_loss"):
        assert getattr(found, name) == getattr(expected, name), name
    for name in ("gradients", "added_gradients"):
        ours, theirs = getattr(found, name), getattr(expected, name)
        assert [g is None for g in ours] == [g is None for g in theirs]
        assert isinstance(ours[0], tf.IndexedSlices), "rows that were looked up, not a table"
        pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a is not None]
        # A key's bias has a gradient of 0 but for rounding: all are measured by one norm.
        difference = tf.linalg.global_norm(
            [tf.cast(a - b, "float32") for a, b in map(dense, pairs)]
        )
        assert difference <= tolerance * tf.linalg.global_norm([dense(pair)[1] for pair in pairs])


def dense(tensors):
    return [tf.convert_to_tensor(tensor) for tensor in tensors]


def test_xla_is_refused():
    model = full_batch.mlp()
    recompute(model.layers[0])
    with pytest.raises(ValueError, match=r"XLA decides which activations it keeps.*'dense"):
        accumulate_gradients(
            model, "mse", tf.ones([4, 5]), tf.ones([4, 1]), micro_batch_size=2, jit_compile=True
        )


def test_activations_are_not_kept():
    """How often a block's hidden units are computed, in the graph of its gradient."""

    def kept(layer):
        layer.build((None, 8))

        @tf.function(autograph=False)
        def slopes(x):
            with tf.GradientTape() as tape, window_forward_pass():
                tape.watch(x)
                y = layer(x, training=True)
            return tape.gradient(y, x)

        graph = slopes.get_concrete_function(tf.TensorSpec([16, 8])).graph
        return sum(operation.type == "Tanh" for operation in graph.get_operations())

    def block():
        return keras.Sequential([L.Dense(32, activation="tanh"), L.Dense(8)])

    assert kept(block()) == 1
    assert kept(recompute(block())) == 2, "forward, and forward again"
