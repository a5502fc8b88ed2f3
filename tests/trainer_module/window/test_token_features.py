"""Micro-batches that are cut to the length of their rows: the update of the whole, padded batch.

Reference: one GradientTape over all rows, padded to the longest length, in float64; losses per
token are summed over the tokens that exist. Tolerance 1e-12 relative.
"""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import TrainStep
from trainer_module.checks.padding import check_padding
from trainer_module.common.sequences import row_lengths

pytestmark = pytest.mark.usefixtures("float64")

LONGEST, ROWS, IDS, RATE = 70, 13, 11, 0.5
RANDOM = np.random.default_rng(0)
LENGTHS = np.array([3, 70, 0, 16, 17, 5, 33, 36, 2, 9, 1, 35, 12])
TOKENS = np.where(
    np.arange(LONGEST) < LENGTHS[:, None], RANDOM.integers(1, IDS, (ROWS, LONGEST)), 0
)
OTHER = RANDOM.normal(size=(ROWS, 2))
FEATURES = {"ids": TOKENS, "x": OTHER}


def inputs():
    return {
        "ids": keras.Input((None,), dtype="int64", name="ids"),
        "x": keras.Input((2,), name="x"),
    }


def lstm() -> keras.Model:
    """One output per row, by the mask of Keras."""
    features = inputs()
    x = keras.layers.Embedding(IDS, 3, mask_zero=True)(features["ids"])
    x = keras.layers.Concatenate()([keras.layers.LSTM(2)(x), features["x"]])
    return keras.Model(features, keras.layers.Dense(1)(x))


def masked_mean() -> keras.Model:
    """One output per row, by a mask of the model's own; with dropout off."""
    features = inputs()
    exists = keras.ops.cast(keras.ops.not_equal(features["ids"], 0), "float64")[..., None]
    x = keras.layers.Dense(5, "tanh")(keras.layers.Embedding(IDS, 3)(features["ids"]))
    x = keras.ops.sum(x * exists, axis=1) / (1.0 + keras.ops.sum(exists, axis=1))
    x = keras.layers.Concatenate()([x, features["x"]])
    return keras.Model(features, keras.layers.Dense(1)(x))


def per_token() -> keras.Model:
    """Logits for each token."""
    features = inputs()
    x = keras.layers.Embedding(IDS, 6, mask_zero=True)(features["ids"])
    return keras.Model(features, keras.layers.Dense(IDS)(keras.layers.Dense(7, "tanh")(x)))


def reference(model, labels, weights):
    """Weights after a step of SGD with the gradient of the whole batch."""
    with tf.GradientTape() as tape:
        outputs = model(FEATURES, training=True)
        if labels.shape[1] == 1:
            losses = tf.reduce_mean((outputs - labels) ** 2, axis=-1)
            counted = weights
        else:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs)
            counted = weights[:, None] * (TOKENS > 0)
        loss = tf.reduce_sum(losses * counted) / np.sum(counted)
    variables = [v.value for v in model.trainable_variables]
    gradients = tape.gradient(loss, variables)
    return [
        v.numpy() - RATE * tf.convert_to_tensor(g)
        for v, g in zip(variables, gradients, strict=True)
    ]


CASES = {
    "lstm": (lstm, "mse"),
    "masked_mean": (masked_mean, "mse"),
    "per_token": (per_token, keras.losses.SparseCategoricalCrossentropy(from_logits=True)),
}


@pytest.mark.parametrize(
    ("kind", "jit_compile", "sizes"),
    [
        ("lstm", False, (3,)),
        ("lstm", True, (3,)),
        ("masked_mean", False, (1, 64)),
        ("masked_mean", True, (64,)),
        ("per_token", False, (5,)),
        ("per_token", True, (3,)),
    ],
)
def test_the_update_is_that_of_the_padded_batch(kind, jit_compile, sizes):
    build, loss = CASES[kind]
    model = build()
    labels = RANDOM.integers(0, IDS, (ROWS, LONGEST)) if kind == "per_token" else OTHER[:, :1] ** 2
    weights = np.linspace(0.0, 2.0, ROWS)
    before, expected = model.get_weights(), reference(model, labels, weights)
    for size in sizes:
        step = TrainStep(
            model,
            keras.optimizers.SGD(RATE),
            loss,
            micro_batch_size=size,
            jit_compile=jit_compile,
            token_features=["ids"],
        )
        step((FEATURES, labels, weights))
        assert full_batch.error(model.get_weights(), expected) < 1e-12, size
        model.set_weights(before)


def test_micro_batches_hold_rows_of_similar_length():
    lengths = []

    class Recorded(keras.layers.Layer):
        def call(self, ids):
            tf.numpy_function(lambda n: lengths.append(int(n)), [tf.shape(ids)[1]], [])
            return ids

    features = inputs()
    x = keras.layers.Embedding(IDS, 3, mask_zero=True)(Recorded()(features["ids"]))
    model = keras.Model(features, keras.layers.Dense(1)(keras.layers.SimpleRNN(1)(x)))
    step = TrainStep(
        model,
        keras.optimizers.SGD(RATE),
        "mse",
        micro_batch_size=2,
        token_features=["ids"],
        jit_compile=False,
        gradient_noise_scale=1,  # one micro-batch per pass
    )
    batch = (FEATURES, OTHER[:, :1])
    step(batch)
    lengths.clear()
    step(batch)
    # Of 0, 1, 2, 3, 5, 9, 12, 16, 17, 33, 35, 36 and 70 tokens, two at a time.
    assert sorted(lengths) == [18, 18, 18, 18, 35, 70, 70]


def test_a_model_that_does_not_mask_is_rejected():
    features = inputs()
    x = keras.layers.Embedding(IDS, 3)(features["ids"])
    model = keras.Model(features, keras.layers.Dense(1)(keras.layers.GlobalAveragePooling1D()(x)))
    step = TrainStep(
        model, keras.optimizers.SGD(RATE), "mse", micro_batch_size=4, token_features=["ids"]
    )
    with pytest.raises(ValueError, match=r"padding behind the tokens of 'ids'.*mask_zero=True"):
        step((FEATURES, OTHER[:, :1]))
    for build, _ in CASES.values():
        check_padding(build(), {n: tf.constant(x) for n, x in FEATURES.items()}, ["ids"])


def test_features_without_one_length_are_rejected():
    for features, message in [
        ({"x": OTHER}, r"token_features has 'ids', and the features are"),
        ({"ids": TOKENS[:, 0], "x": OTHER}, r"\[rows, length\] of one length for all batches"),
    ]:
        step = TrainStep(
            lstm(), keras.optimizers.SGD(RATE), "mse", micro_batch_size=4, token_features=["ids"]
        )
        with pytest.raises(ValueError, match=message):
            step((features, OTHER[:, :1]))


def test_the_length_of_a_row_ends_with_its_last_token():
    np.testing.assert_array_equal(row_lengths({"ids": tf.constant(TOKENS)}, ["ids"])[0], LENGTHS)
