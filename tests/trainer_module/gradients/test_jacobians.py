"""Jacobians. Reference: tape.batch_jacobian in float64. Tolerance: 1e-9."""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import jacobian

L = keras.layers


def two_axes():
    x = keras.Input((4, 3), dtype="float64")
    return keras.Model(x, L.LayerNormalization()(L.Conv1D(2, 2, activation="tanh")(x)))


def lstm():
    x = keras.Input((4, 3), dtype="float64")
    return keras.Model(x, L.LSTM(3)(x))


@pytest.mark.parametrize(
    ("build", "chunk_size"), [(lambda: full_batch.mlp(3), "auto"), (two_axes, 2), (lstm, 2)]
)
def test_it_is_that_of_batch_jacobian(float64, build, chunk_size):
    model = build()
    x = tf.constant(np.random.default_rng(0).normal(size=(5, *model.input_shape[1:])))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        outputs = model(x)
    wanted = tape.batch_jacobian(outputs, x, experimental_use_pfor=False)
    found = jacobian(model, x, chunk_size=chunk_size)
    assert found.shape == wanted.shape
    assert full_batch.error([found], [wanted]) < 1e-9


def test_dicts_and_a_chosen_output(float64):
    model = full_batch.two_in_two_out()
    features, _, _ = full_batch.batch("two_in_two_out")
    features = {name: tf.constant(array) for name, array in features.items()}
    with tf.GradientTape() as tape:
        tape.watch(features["b"])
        outputs = model(features)["q"]
    wanted = tape.batch_jacobian(outputs, features["b"])
    found = jacobian(model, features, chunk_size=4, output=lambda outputs: outputs["q"])
    assert set(found) == {"a", "b"}
    assert full_batch.error([found["b"]], [wanted]) < 1e-9
    with pytest.raises(ValueError, match="several outputs: choose one by `output`"):
        jacobian(model, features, chunk_size=4)


def test_ids_have_none():
    features, _, _ = full_batch.batch("embeddings")
    with pytest.raises(ValueError, match="ids have no gradient"):
        jacobian(full_batch.embeddings(), features, chunk_size=2)
