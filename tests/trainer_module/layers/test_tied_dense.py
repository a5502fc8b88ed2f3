"""TiedDense: one matrix with two uses.

Reference: one tape over separate copies of the matrix, float64, 1e-12 of the largest value.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from full_batch import error

from trainer_module import TiedDense

L = keras.layers


def tied_model() -> keras.Model:
    ids = keras.Input((4,), dtype="int64")
    embedding = L.Embedding(7, 3, embeddings_initializer="glorot_uniform", name="embedding")
    hidden = L.Dense(3, activation="tanh")(embedding(ids))
    return keras.Model(ids, TiedDense(embedding, name="tied")(hidden))


IDS = np.random.default_rng(0).integers(0, 7, (5, 4))


def test_the_gradient_is_the_sum_of_both_uses(float64):
    model = tied_model()
    matrix, kernel, kernel_bias, bias = (tf.constant(w) for w in model.get_weights())
    first, second = tf.identity(matrix), tf.identity(matrix)
    with tf.GradientTape() as tape:
        tape.watch([first, second])
        hidden = tf.tanh(tf.gather(first, IDS) @ kernel + kernel_bias)
        outputs = hidden @ tf.transpose(second) + bias
        loss = tf.reduce_sum(outputs**2)
    parts = tape.gradient(loss, [first, second])
    expected = tf.convert_to_tensor(parts[0]) + parts[1]
    with tf.GradientTape() as tape:
        found_outputs = model(IDS)
        loss = tf.reduce_sum(found_outputs**2)
    found = tape.gradient(loss, model.get_layer("embedding").embeddings.value)
    assert error([found_outputs], [outputs]) < 1e-12
    assert error([tf.convert_to_tensor(found)], [expected]) < 1e-12
    assert np.abs(parts[1]).max() > 1e-3
    assert np.abs(tf.convert_to_tensor(parts[0])).max() > 1e-3


def test_a_loaded_model_still_shares_the_matrix(tmp_path):
    tied_model().save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.get_layer("tied").embedding is loaded.get_layer("embedding")
    assert len(loaded.trainable_variables) == 4


@pytest.mark.parametrize(
    "copy",
    [keras.models.clone_model, lambda model: keras.Model.from_config(model.get_config())],
    ids=["clone_model", "from_config"],
)
def test_a_copy_that_shares_nothing_is_an_error(copy):
    with pytest.raises(ValueError, match="'embedding'") as error:
        copy(tied_model())
    assert ".keras" in str(error.value)


def test_inputs_that_do_not_fit_are_an_error():
    embedding = L.Embedding(7, 3)
    embedding(IDS)
    with pytest.raises(ValueError, match="output_dim=3"):
        TiedDense(embedding)(tf.ones([2, 4]))
    with pytest.raises(ValueError, match="Call it before"):
        TiedDense(L.Embedding(7, 3))(tf.ones([2, 3]))


def test_a_quantised_embedding_gives_its_scaled_values():
    """Reference: the product with what the quantised Embedding returns for each id."""
    model = tied_model()
    tied, embedding = model.get_layer("tied"), model.get_layer("embedding")
    before = embedding(np.arange(7)).numpy()
    embedding.quantize("int8")
    matrix = embedding(np.arange(7)).numpy()
    assert 0 < np.abs(matrix - before).max() < 0.01
    rows = np.random.default_rng(0).normal(size=(9, 3)).astype("float32")
    np.testing.assert_allclose(tied(rows), rows @ matrix.T, atol=1e-6)


def test_the_mask_of_the_ids_reaches_the_loss():
    embedding = L.Embedding(7, 3, mask_zero=True)
    outputs = TiedDense(embedding)(embedding(IDS))
    np.testing.assert_array_equal(outputs._keras_mask, IDS > 0)


def test_integers_are_multiplied_as_numbers():
    embedding = L.Embedding(7, 3)
    embedding(IDS)
    tied = TiedDense(embedding)
    np.testing.assert_array_equal(tied(np.ones((2, 3), int)), tied(np.ones((2, 3), "float32")))
    assert np.abs(tied(np.ones((2, 3), int))).max() > 0
