"""Attributions to inputs and embeddings. Reference: closed forms and tapes in float64, 1e-6."""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import (
    gradient_norms,
    input_gradients,
    integrated_gradients,
    per_example_gradients,
)
from trainer_module.model.layers import PackedEmbedding

L = keras.layers


def packed(linear=False):
    """Packed floats and ids, embedded in one table, as the default model has them."""
    x = keras.Input((2,), name="x", dtype="float64")
    ids = keras.Input((2,), name="i", dtype="int64")
    embedded = PackedEmbedding([3, 4], 2, name="embeddings")(ids)
    hidden = L.Concatenate()([x, embedded])
    if not linear:
        hidden = L.Dense(8, activation="tanh")(hidden)
    return keras.Model({"x": x, "i": ids}, L.Dense(1)(hidden))


def rows(count=5):
    random = np.random.default_rng(0)
    ids = np.stack([random.integers(0, 3, count), random.integers(0, 4, count)], 1)
    return {"x": random.normal(size=(count, 2)), "i": ids}


def test_embedded_ids_have_the_gradients_of_the_embeddings(float64):
    model, features = packed(), rows()
    table = model.get_layer("embeddings")
    part = {"x": tf.constant(features["x"]), "e": table(features["i"])}
    with tf.GradientTape() as tape:
        tape.watch(part)
        hidden = tf.concat([part["x"], part["e"]], 1)
        for layer in model.layers[-2:]:
            hidden = layer(hidden)
    wanted = tape.gradient(hidden, part)
    found = input_gradients(model, features, chunk_size=2, embeddings=["embeddings"])
    assert found.inputs["i"] is None
    pairs = [found.inputs["x"], found.embeddings["embeddings"]]
    assert full_batch.error(pairs, [wanted["x"], wanted["e"]]) < 1e-9
    assert vars(table).get("call") is None  # nothing of it stays


def test_of_a_linear_model_they_are_its_terms(float64):
    """Closed form: weight · (x - x')."""
    model, features = packed(linear=True), rows()
    kernel = model.layers[-1].kernel.numpy()[:, 0]
    baseline = {"x": np.full((1, 2), 0.5), "i": np.zeros((1, 2), int)}
    found = integrated_gradients(
        model, features, baseline=baseline, steps=3, chunk_size=2, embeddings=["embeddings"]
    )
    table = model.get_layer("embeddings")
    moved = table(features["i"]) - table(baseline["i"])
    wanted = [kernel[:2] * (features["x"] - 0.5), kernel[2:] * moved]
    assert full_batch.error([found.inputs["x"], found.embeddings["embeddings"]], wanted) < 1e-9
    np.testing.assert_allclose(found.gap, 0, atol=1e-12)
    np.testing.assert_allclose(found.change, sum(np.sum(each, 1) for each in wanted), rtol=1e-9)


def test_sums_of_a_float16_model_are_in_float32():
    """Closed form: weight · x. In float16, 50 steps miss 1 % of it."""
    with full_batch.precision("mixed_float16"):
        ids = keras.Input((2,), dtype="int64", name="i")
        hidden = L.Embedding(7, 400, name="table")(ids)
        model = keras.Model({"i": ids}, L.Dense(1)(L.Flatten()(hidden)))
    features = {"i": rows()["i"]}
    found = integrated_gradients(model, features, chunk_size=2, embeddings=["table"])
    kernel = model.layers[-1].kernel.numpy().astype("float16").reshape(2, 400)
    wanted = model.get_layer("table")(features["i"]).numpy().astype("float64") * kernel
    np.testing.assert_allclose(found.embeddings["table"], wanted, rtol=1e-5)
    assert found.gap.dtype == tf.float32


def test_they_are_complete(float64):
    for chunk_size in [2, "auto"]:
        model, features = packed(), rows()
        found = integrated_gradients(
            model, features, chunk_size=chunk_size, steps=20, embeddings=["embeddings"]
        )
        parts = [found.inputs["x"], found.embeddings["embeddings"]]
        total = tf.reduce_sum(tf.concat(parts, 1), 1)
        np.testing.assert_allclose(total, found.change, atol=1e-9)
        np.testing.assert_allclose(found.gap, 0, atol=1e-9)


def test_ids_that_are_not_embedded_stay(float64):
    model, features = packed(), rows()
    found = integrated_gradients(model, features, chunk_size=4)
    start = {**features, "x": np.zeros_like(features["x"])}
    np.testing.assert_allclose(found.change, (model(features) - model(start))[:, 0], atol=1e-12)
    np.testing.assert_allclose(tf.reduce_sum(found.inputs["x"], 1), found.change, atol=1e-9)
    assert found.embeddings == {}


def test_each_replica_has_the_attributions_of_its_rows(float64, strategies):
    strategy = strategies["mirrored2"]
    with strategy.scope():
        model = packed()
    features = rows(6)
    options = {"chunk_size": 2, "steps": 3, "embeddings": ["embeddings"]}
    whole = integrated_gradients(model, features, **options)
    dataset = tf.data.Dataset.from_tensor_slices(features).batch(6)
    batch = next(iter(strategy.experimental_distribute_dataset(dataset)))

    @tf.function(autograph=False)
    def on_replicas(batch):
        return strategy.run(lambda part: integrated_gradients(model, part, **options), (batch,))

    found = on_replicas(batch)
    for mine, wanted in (
        (found.inputs["x"], whole.inputs["x"]),
        (found.embeddings["embeddings"], whole.embeddings["embeddings"]),
        (found.change, whole.change),
    ):
        local = np.concatenate(strategy.experimental_local_results(mine))
        np.testing.assert_allclose(local, wanted, rtol=1e-9, atol=1e-12)


def test_too_few_steps_are_reported(caplog):
    steep = keras.Sequential([keras.Input((1,)), L.Dense(1), L.Activation("sigmoid")])
    steep.set_weights([np.full((1, 1), 60.0), np.full(1, -20.0)])
    with caplog.at_level("WARNING"):
        found = integrated_gradients(steep, np.ones((1, 1), "float32"), steps=2, chunk_size=1)
    assert abs(float(found.gap[0])) > 0.01
    assert "steps=8" in caplog.text


def test_names_and_baselines_that_do_not_fit_are_named():
    for options, message in [
        ({"embeddings": ["embedding"]}, "no layer 'embedding', did you mean 'embeddings'"),
        ({"baseline": {"x": np.zeros((3, 2)), "i": np.zeros((3, 2), int)}}, r"\(3, 2\) where the"),
        ({"baseline": {"x": np.zeros((1, 2))}}, r"shapes {.*'x': \[1, 2\]"),
    ]:
        with full_batch.precision("float64"), pytest.raises(ValueError, match=message):
            integrated_gradients(packed(), rows(), **{"chunk_size": 2, **options})


def test_models_without_variables_yet_are_rejected():
    """Their gradients would be empty, and their norms 0."""
    unbuilt = keras.Sequential([L.Dense(1)])
    x, y = tf.ones([4, 2]), tf.ones([4, 1])
    for call in (
        lambda: input_gradients(unbuilt, x, chunk_size=2),
        lambda: gradient_norms(unbuilt, "mse", x, y, chunk_size=2),
        lambda: per_example_gradients(unbuilt, "mse", x, y, chunk_size=2),
    ):
        with pytest.raises(ValueError, match="is not built"):
            call()


@keras.saving.register_keras_serializable("tests")
class Ordered(L.Layer):
    """Embeds ids in another order of the rows, and returns them in theirs."""

    def __init__(self, function, **options):
        super().__init__(**options)
        self.function = function
        self.table = L.Embedding(5, 2, name="table")

    def build(self, shape):
        self.table.build()

    def call(self, inputs):
        ids, x = inputs
        return tf.reshape(self.function(self.table, ids, x), [-1, 2 * ids.shape[1]])


def ordered(function):
    x = keras.Input((2,), name="x", dtype="float64")
    ids = keras.Input((3,), name="i", dtype="int64")
    hidden = L.Concatenate()([x, Ordered(function)([ids, x])])
    return keras.Model({"x": x, "i": ids}, L.Dense(1)(L.Dense(8, activation="tanh")(hidden)))


def ordered_rows():
    random = np.random.default_rng(1)
    return {"x": random.normal(size=(6, 2)), "i": random.integers(0, 5, (6, 3))}


def test_layers_whose_outputs_cannot_be_replaced_are_named():
    for call in (
        lambda table, ids, x: tf.function(table)(ids),
        lambda table, ids, x: tf.cond(x[0, 0] > 0, lambda: table(ids), lambda: table(-ids)),
    ):
        with full_batch.precision("float64"), pytest.raises(ValueError, match="layer 'table' is"):
            input_gradients(ordered(call), ordered_rows(), chunk_size=2, embeddings=["table"])
