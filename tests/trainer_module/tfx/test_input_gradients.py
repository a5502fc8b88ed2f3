"""The signature `input_gradients`. Reference: closed forms, and predictions, in float64."""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from shared_core.feature_layout import Column, FeatureLayout
from trainer_module import input_gradients_signature
from trainer_module.gradients.inputs import quadrature
from trainer_module.model.layers import PackedEmbedding, PooledEmbedding
from trainer_module.tfx.input_gradients import check_one_output

L = keras.layers


def column(name, kind, output, position, size=None, source=None):
    return Column(
        name=name, source=source or name, group="g", kind=kind, output=output, position=position,
        vocabulary_size=size,
    )  # fmt: skip


LAYOUT = FeatureLayout(
    columns=(
        column("fare", "z_score", "f", 0),
        column("miles", "z_score", "f", 1),
        column("note_0_weight", "text_weight", "f", 2, source="note"),
        column("note_1_weight", "text_weight", "f", 3, source="note"),
        column("area", "vocabulary", "i", 0, 3),
        column("note_0", "text", "i", 1, 5, source="note"),
        column("note_1", "text", "i", 2, 5, source="note"),
        column("company", "vocabulary", "i", 3, 4),
    )
)
SPECS = {"f": tf.TensorSpec([None, 4], tf.float64), "i": tf.TensorSpec([None, 4], tf.int64)}


def rows(count=7, seed=0):
    random = np.random.default_rng(seed)
    ids = np.stack([random.integers(0, n, count) for n in (3, 5, 5, 4)], 1)
    return {"f": tf.constant(random.normal(size=(count, 4))), "i": tf.constant(ids)}


def parts(features):
    """The default model's parts: packed floats, two tables of ids, a text.

    Area and company use the same rows of the first table, as columns with shared ids do.
    """
    take = keras.ops.take
    ids = take(features["i"], [0, 3], axis=-1)
    text = [take(features["i"], [1, 2], axis=-1), take(features["f"], [2, 3], axis=-1)]
    return (
        take(features["f"], [0, 1], axis=-1),
        PackedEmbedding([3, 4], 2, starts=[0, 0], name="embeddings")(ids),
        PackedEmbedding([3, 4], 1, initializer="uniform", name="linear_ids")(ids),
        PooledEmbedding(5, 4, name="text_0")(text),
    )


def model_of(head):
    features = {
        "f": keras.Input((4,), name="f", dtype="float64"),
        "i": keras.Input((4,), name="i", dtype="int64"),
    }
    return keras.Model(features, head(L.Concatenate()(list(parts(features)))))


def integrate(signature, features, steps=1):
    """(columns, attributions, change of the prediction) by Gauss-Legendre quadrature."""
    found = signature(features, *map(tf.constant, quadrature(steps)))
    columns = [name.decode() for name in found["columns"].numpy()]
    change = found["prediction"] - found["baseline_prediction"]
    return columns, found["attributions"].numpy(), change.numpy()


@pytest.fixture(scope="module")
def linear():
    """A linear model, its signature, rows, and what its attributions must be by column."""
    with full_batch.precision("float64"):
        model = model_of(L.Dense(1))
        signature = input_gradients_signature(
            model, SPECS, layout=LAYOUT, unscaled=lambda outputs: 3 * outputs
        )
        features = rows()
        baseline = tf.nest.map_structure(lambda x: tf.zeros_like(x[:1]), features)
        kernel = 3 * model.layers[-1].kernel.numpy()[:, 0]
        # Floats, 2 numbers per id, 1 number per id, 4 numbers per text.
        inputs = keras.Model(model.input, model.layers[-1].input)
        terms = (inputs(features) - inputs(baseline)).numpy() * kernel
    owners = ["fare", "miles", *["area"] * 2, *["company"] * 2, "area", "company", *["note"] * 4]
    wanted = {
        name: terms[:, [owner == name for owner in owners]].sum(axis=1) for name in set(owners)
    }
    return signature, features, wanted


def test_of_a_linear_model_they_are_its_terms_by_column(linear):
    """Closed form, 1e-12: weight * (x - x'), added up over the embeddings of an id or a text."""
    signature, features, wanted = linear
    columns, found, _ = integrate(signature, features)
    assert columns == ["fare", "miles", "note", "area", "company"]
    for place, name in enumerate(columns):
        np.testing.assert_allclose(found[:, place], wanted[name], rtol=1e-12, atol=1e-12)


def test_they_add_up_to_the_change_of_the_most_probable_class():
    with full_batch.precision("float64"):
        hidden, outputs = L.Dense(8, activation="tanh"), L.Dense(3, activation="softmax")
        model = model_of(lambda tensor: outputs(hidden(tensor)))
        signature = input_gradients_signature(model, SPECS)
        features = rows()
        wanted = model(features).numpy()
        columns, found, change = integrate(signature, features, steps=12)
        last = signature(features, *map(tf.constant, quadrature(1)))
    assert last["class"].numpy().tolist() == wanted.argmax(axis=1).tolist()
    np.testing.assert_allclose(last["prediction"], wanted.max(axis=1), rtol=1e-9)
    np.testing.assert_allclose(found.sum(axis=1), change, atol=1e-6)
    # Without a layout, positions name the columns; a text is named by its layer.
    assert columns == ["f[0]", "f[1]", "f[2]", "f[3]", "i[0]", "i[3]", "text_0"]
    assert not found[:, 2:4].any()


def test_ids_that_no_layer_embeds_are_named(warnings):
    features = {"x": keras.Input((1,), name="x"), "i": keras.Input((2,), name="i", dtype="int64")}
    numbers = keras.ops.cast(features["i"], "float32")
    model = keras.Model(features, L.Dense(1)(L.Concatenate()([features["x"], numbers])))
    specs = {"x": tf.TensorSpec([None, 1], tf.float32), "i": tf.TensorSpec([None, 2], tf.int64)}
    signature = input_gradients_signature(model, specs)
    one = {"x": tf.ones([1, 1]), "i": tf.ones([1, 2], tf.int64)}
    found = signature(one, *map(tf.constant, quadrature(1)))
    assert found["columns"].numpy().tolist() == [b"x"]
    assert any("'i[0]', 'i[1]'" in line for line in warnings)


def test_errors_name_what_is_wrong():
    one, ids = keras.Input((1,), name="a b"), keras.Input((1,), name="i", dtype="int64")
    number = tf.TensorSpec([None, 1], tf.float32)
    two_outputs = keras.Model({"a b": one}, [L.Dense(1)(one), L.Dense(1)(one)])
    with pytest.raises(ValueError, match=r"one output.*\[rows, classes\]"):
        input_gradients_signature(two_outputs, {"a b": number})
    model = keras.Model({"a b": one}, L.Dense(1)(one))
    with pytest.raises(ValueError, match=r"'a b' and 'a-b'.*'a_b'.*rename"):
        input_gradients_signature(model, {"a b": number, "a-b": number})
    only_ids = keras.Model({"i": ids}, keras.ops.cast(ids, "float32"))
    with pytest.raises(ValueError, match=r"i \(int64\).*Embedding"):
        input_gradients_signature(only_ids, {"i": tf.TensorSpec([None, 1], tf.int64)})


def test_rows_in_another_order_have_their_columns():
    """A layer sorts the rows and swaps their axes. Closed form: 2 for each id's embedding."""
    order = lambda x: tf.argsort(-x["f"][:, 0])  # noqa: E731

    class Sorted(L.Layer):
        def __init__(self):
            super().__init__()
            self.table = L.Embedding(5, 1, name="table", dtype="float64")

        def build(self, shape):
            self.table.build()

        def call(self, x):
            ids = tf.transpose(tf.gather(x["i"], order(x)))
            return tf.gather(tf.transpose(self.table(ids))[0], tf.argsort(order(x)))

    features = {"f": keras.Input((1,), name="f"), "i": keras.Input((2,), name="i", dtype="int64")}
    layer = Sorted()
    model = keras.Model(features, keras.ops.sum(2 * layer(features), axis=1, keepdims=True))
    specs = {"f": tf.TensorSpec([None, 1], tf.float32), "i": tf.TensorSpec([None, 2], tf.int64)}
    signature = input_gradients_signature(model, specs)
    ids, f = np.array([[1, 2], [3, 4], [0, 1], [2, 2]]), np.array([[1], [3], [0], [2]], "float32")
    table = layer.table.get_weights()[0][:, 0]
    wanted = 2 * (table[ids] - table[0])
    for part in (slice(4), slice(1, 2)):
        data = {"f": tf.constant(f[part]), "i": tf.constant(ids[part])}
        columns, found, _ = integrate(signature, data)
        assert columns == ["f", "i[0]", "i[1]"]
        np.testing.assert_allclose(found[:, 1:], wanted[part], rtol=0, atol=1e-12)


def test_a_model_of_pictures_is_refused_before_its_training():
    pixels = keras.Input((2, 2, 3), name="photo", dtype="uint8")
    normal = L.Normalization(mean=[1.0, 2.0, 3.0], variance=[4.0, 1.0, 1.0])(pixels)
    model = keras.Model({"photo": pixels}, L.Dense(1)(L.Flatten()(normal)))
    with pytest.raises(ValueError, match="photo"):
        check_one_output(model)
