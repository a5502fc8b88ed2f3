"""Gradients row by row. Reference: a GradientTape per row in float64. Tolerance: 1e-12."""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import input_gradients, per_example_gradients


def row_by_row(model, kind, features, labels, weights):
    rows = []
    for i in range(len(weights)):
        with tf.GradientTape() as tape:
            outputs = model(features[i : i + 1], training=True)
            loss = weights[i] * tf.reduce_mean((outputs - labels[i : i + 1]) ** 2)
        slopes = tape.gradient(loss, [v.value for v in model.trainable_variables])
        rows.append([tf.convert_to_tensor(s).numpy() for s in slopes])
    return [np.stack(x) for x in zip(*rows, strict=True)]


@pytest.mark.parametrize("kind", ["mlp", "embeddings", "layer_norm", "separable_convolution"])
@pytest.mark.parametrize("chunk_size", [4, 64])
def test_they_are_those_of_each_row_alone(float64, kind, chunk_size):
    model = full_batch.MODELS[kind]()
    data = full_batch.batch(kind)
    found = per_example_gradients(model, "mse", *data, chunk_size=chunk_size)
    assert full_batch.error(found, row_by_row(model, kind, *data)) < 1e-12


@pytest.mark.parametrize("layer", ["LSTM", "GRU"])
def test_recurrent_layers(float64, layer):
    """Their gradients have loops, over steps, that cannot be vectorised over rows."""
    recurrent = getattr(keras.layers, layer)(3)
    model = keras.Sequential([keras.Input((4, 2), dtype="float64"), recurrent])
    random = np.random.default_rng(0)
    data = random.normal(size=(5, 4, 2)), random.normal(size=(5, 3)), np.arange(5.0)
    wanted = row_by_row(model, layer, *data)
    for wrap in (lambda function: function, tf.function(autograph=False)):
        found = wrap(lambda *data: per_example_gradients(model, "mse", *data, chunk_size=2))(
            *map(tf.constant, data)
        )
        assert full_batch.error(found, wanted) < 1e-12


@pytest.mark.parametrize("function", [per_example_gradients, input_gradients])
def test_no_rows_have_no_gradients(function):
    model = full_batch.mlp()
    features, labels, weights = (tf.constant(x[:0]) for x in full_batch.batch("mlp"))
    if function is input_gradients:
        assert input_gradients(model, features, chunk_size=2).shape == (0, 5)
        return
    data = ("mse", features, labels, weights)
    found = per_example_gradients(model, *data, chunk_size=2)
    assert [tuple(g.shape) for g in found] == [(0, *v.shape) for v in model.trainable_variables]
    norms = per_example_gradients(model, *data, chunk_size=2, reduce=tf.linalg.global_norm)
    assert tuple(norms.shape) == (0,)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (
            tf.reduce_sum,
            r"one number for all rows: .*depend on chunk_size; return one",
        ),
        (lambda outputs: outputs[:, :2], r"shape \(3, 2\): .*added up; return one number per row"),
    ],
)
def test_outputs_that_are_not_one_number_per_row_are_refused(output, message):
    features, _, _ = full_batch.batch("mlp", 3)
    with pytest.raises(ValueError, match=message):
        input_gradients(full_batch.mlp(units=3), features, chunk_size=3, output=output)


def test_reduced_to_norms(float64):
    model = full_batch.mlp()
    data = full_batch.batch("mlp")

    @tf.function
    def norms(*data):
        return per_example_gradients(
            model, "mse", *data, chunk_size=3, reduce=tf.linalg.global_norm
        )

    wanted = np.sqrt(
        sum((g.reshape(len(g), -1) ** 2).sum(1) for g in row_by_row(model, "mlp", *data))
    )
    np.testing.assert_allclose(norms(*data), wanted, rtol=1e-12)


@pytest.mark.parametrize("chunk_size", [1, 4, 64])
def test_input_gradients_are_those_of_the_whole_batch(float64, chunk_size):
    model = full_batch.two_in_two_out()
    features, _, _ = full_batch.batch("two_in_two_out")
    tensors = {name: tf.constant(x) for name, x in features.items()}
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        total = tf.reduce_sum(model(tensors)["q"][:, 1])
    wanted = tape.gradient(total, tensors)
    found = input_gradients(
        model, features, chunk_size=chunk_size, output=lambda outputs: outputs["q"][:, 1]
    )
    assert set(found) == {"a", "b"}
    assert full_batch.error([found["a"], found["b"]], [wanted["a"], wanted["b"]]) < 1e-12


def test_ids_have_no_input_gradient():
    features, _, _ = full_batch.batch("embeddings")
    with pytest.raises(ValueError, match="ids have no gradient"):
        input_gradients(full_batch.embeddings(), features, chunk_size=2)


def test_several_outputs_need_a_choice():
    features, _, _ = full_batch.batch("two_in_two_out")
    with pytest.raises(ValueError, match="say which by `output`"):
        input_gradients(full_batch.two_in_two_out(), features, chunk_size=2)


@pytest.mark.parametrize("function", [per_example_gradients, input_gradients])
def test_chunks_of_no_rows_are_refused(function):
    features, labels, _ = full_batch.batch("mlp")
    given = ("mse", features, labels) if function is per_example_gradients else (features,)
    with pytest.raises(ValueError, match="chunk_size=0"):
        function(full_batch.mlp(), *given, chunk_size=0)
