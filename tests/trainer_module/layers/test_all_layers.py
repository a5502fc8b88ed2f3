"""What all layers of trainer_module.layers must do: save, export, quantise, train in windows.

References: of training, full_batch.train (one device, one full batch, float64) to 1e-12; of a saved
model the model itself, bit for bit; of an export the model, to 1e-6.
"""

from __future__ import annotations

import re
import subprocess
import sys
import warnings

import cells
import exactness
import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf
from cells import Cell

from trainer_module import (
    DepthwiseSeparable,
    LowRankDense,
    PrunedDense,
    StagedModel,
    TiedDense,
    per_example_gradients,
    split_model,
)

L = keras.layers


def dense_model(layer) -> keras.Model:
    """5 features -> 1 value, by the layer of 4 units."""
    features = keras.Input((5,), dtype=keras.config.floatx())
    return keras.Model(features, L.Dense(1, name="head")(layer(features)))


def nan_dense() -> keras.layers.Layer:
    layer = L.Dense(3, kernel_initializer=keras.initializers.Constant(np.nan), name="broken")
    layer.build((None, 4))
    return layer


def pruned() -> PrunedDense:
    return PrunedDense(4, 0.5, 0, 10, 5, activation="tanh", name="tested")


def images(**options) -> keras.Model:
    """6 x 6 images of 2 channels -> 1 value."""
    x = keras.Input((6, 6, 2), dtype=keras.config.floatx())
    hidden = DepthwiseSeparable(4, activation="tanh", name="tested", **options)(x)
    return keras.Model(x, L.Dense(1, name="head")(L.GlobalAveragePooling2D()(hidden)))


def tied() -> keras.Model:
    """4 ids -> the logits of 7 ids each, after a dense layer over these as in `images`."""
    ids = keras.Input((4,), dtype="int64")
    embedding = L.Embedding(7, 3, mask_zero=True, embeddings_initializer="glorot_uniform")
    hidden = L.Dense(3, activation="tanh", name="hidden")(embedding(ids))
    return keras.Model(ids, L.Dense(7, name="head")(TiedDense(embedding, name="tested")(hidden)))


# The model, and the kind of rows and loss in full_batch.
MODELS = {
    "low_rank": (
        lambda: dense_model(LowRankDense(4, 2, activation="tanh", name="tested")),
        "mlp",
    ),
    "pruned": (lambda: dense_model(pruned()), "mlp"),
    "separable": (images, "separable_convolution"),
    "separable_groups": (
        lambda: images(groups=2, strides=2, padding="valid"),
        "separable_convolution",
    ),
    "tied": (tied, "tokens"),
}
every_layer = pytest.mark.parametrize("name", MODELS)


def model_and_rows(name: str):
    """The model with random weights, half of the mask 0, and 11 rows."""
    build, kind = MODELS[name]
    model = build()
    random = np.random.default_rng(2)
    for variable in model.variables:
        value = random.normal(size=variable.shape)
        variable.assign(value > 0 if variable.name == "mask" else value)
    return model, full_batch.batch(kind)[0]


@every_layer
def test_a_saved_model_is_the_same_bit_for_bit(name, tmp_path):
    model, rows = model_and_rows(name)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.get_layer("tested").get_config() == model.get_layer("tested").get_config()
    assert [v.path for v in loaded.variables] == [v.path for v in model.variables]
    np.testing.assert_array_equal(loaded(rows), model(rows))


def test_a_saved_model_loads_in_a_program_that_imports_the_layers_alone(tmp_path):
    for name in MODELS:
        model_and_rows(name)[0].save(tmp_path / f"{name}.keras")
    code = (
        "import sys, keras\n"
        "from trainer_module import DepthwiseSeparable, LowRankDense, PrunedDense, TiedDense\n"
        "for path in sys.argv[1:]: print(keras.models.load_model(path).count_params())"
    )
    paths = [str(tmp_path / f"{name}.keras") for name in MODELS]
    done = subprocess.run(
        [sys.executable, "-c", code, *paths], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    counts = [str(MODELS[name][0]().count_params()) for name in MODELS]
    assert done.stdout.split() == counts


@every_layer
def test_an_export_gives_the_same_numbers(name, tmp_path):
    model, rows = model_and_rows(name)
    archive = keras.export.ExportArchive()
    archive.track(model)
    signature = [tf.TensorSpec((None, *rows.shape[1:]), rows.dtype)]
    archive.add_endpoint("serve", lambda x: model(x, training=False), input_signature=signature)
    archive.write_out(str(tmp_path / "export"), verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "export"))
    np.testing.assert_allclose(loaded.serve(rows), model(rows), rtol=1e-6, atol=1e-6)


def test_quantisation_changes_no_number_of_the_layers():
    """In one model. `tied` follows its Embedding: see test_tied_dense."""
    models = {name: model_and_rows(name) for name in MODELS if name != "tied"}
    tested = [model.get_layer("tested") for model, _ in models.values()]
    for name, layer in zip(models, tested, strict=True):
        layer.name = name
    inputs = [model.input for model, _ in models.values()]
    hidden = L.Concatenate()([L.Flatten()(layer.output) for layer in tested])
    whole = keras.Model(inputs, L.Dense(1, name="head")(hidden))
    outputs = keras.Model(inputs, hidden)
    rows = [rows for _, rows in models.values()]
    expected = outputs(rows).numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras warns of each layer that it leaves as it is
        whole.quantize("int8")
    assert whole.get_layer("head").quantization_mode == "int8"
    np.testing.assert_array_equal(outputs(rows), expected)


def cell_of(name, monkeypatch, *values, precision="float64") -> Cell:
    """A cell of strategy, micro-batch size and rows that trains the model of that name."""
    strategy, micro_batch_size, rows, optimizer = values
    build, kind = MODELS[name]
    monkeypatch.setitem(full_batch.MODELS, kind, build)
    return Cell(strategy, kind, optimizer, micro_batch_size, rows, "some_zero", precision=precision)


@every_layer
def test_windows_are_exact(strategies, monkeypatch, name):
    exactness.check(cell_of(name, monkeypatch, "none", 3, "ragged", "adamw"), strategies)


@pytest.mark.parametrize("name", ["pruned", "separable", "tied"])
def test_replicas_are_exact(strategies, monkeypatch, name):
    cell = cell_of(name, monkeypatch, "mirrored2", 2, "fewer_than_replicas", "sgd")
    exactness.check(cell, strategies)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "separable_groups"])
def test_windows_in_bfloat16_are_as_close_as_a_full_batch(strategies, monkeypatch, name):
    """Distance of the updates from float64: at most 1.5 times that of a bfloat16 full batch."""
    cell = cell_of(name, monkeypatch, "none", 4, "ragged", "sgd", precision="mixed_bfloat16")
    first, expected, _ = cells.reference(cell)
    full = exactness.distance(cells.reference(cell, cell.precision)[1], expected, first)
    step = cells.trained(cell, strategies["none"])
    assert step.model.get_layer("tested").compute_dtype == "bfloat16"
    assert 0 < exactness.distance(step.model.get_weights(), expected, first) < 1.5 * full < 0.15


@pytest.mark.parametrize("name", ["pruned", "tied"])
def test_stages_are_exact(strategies, monkeypatch, name):
    build, kind = MODELS[name]

    def staged():
        model = build()
        last = model.layers[-2].name
        return StagedModel(split_model(model, [last]), devices=["CPU:0", "CPU:1"])

    cell = Cell("none", kind, "sgd", 2, "ragged", "random")
    monkeypatch.setitem(full_batch.MODELS, kind, build)
    expected = cells.reference(cell)[1]
    monkeypatch.setitem(full_batch.MODELS, kind, staged)
    step = cells.trained(cell, strategies["none"])
    assert full_batch.error(step.model.get_weights(), expected) < 1e-12


@pytest.mark.parametrize("name", ["low_rank", "pruned", "separable"])
def test_gradients_of_rows_sum_to_that_of_the_batch(float64, name):
    """Reference: one tape over all rows, 1e-12 of each variable's largest value."""
    model, rows = model_and_rows(name)
    labels = np.ones((len(rows), 1))
    found = tf.function(per_example_gradients, autograph=False)(
        model, "mse", tf.constant(rows), tf.constant(labels), chunk_size=4
    )
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((model(rows, training=True) - labels) ** 2)
    expected = tape.gradient(loss, [v.value for v in model.trainable_variables])
    assert full_batch.error([tf.reduce_sum(g, 0) for g in found], expected) < 1e-12


@pytest.mark.parametrize(
    ("build", "facts"),
    [
        (lambda: LowRankDense(0, 1), ["units=0", "at least 1"]),
        (lambda: LowRankDense(4, 5), ["rank=5", "units=4"]),
        (lambda: LowRankDense(4, 3)(tf.ones([2, 2])), ["rank=3", "inputs=2"]),
        (lambda: LowRankDense.from_dense(L.Dense(3), 1), ["layer=", "not built"]),
        (lambda: LowRankDense.from_dense(L.Flatten(), 1), ["layer=", "Dense"]),
        (lambda: LowRankDense.from_dense(nan_dense(), 1), ["layer='broken'", "finite"]),
        (lambda: LowRankDense(4, 2).build((2, None)), ["(2, None)", "keras.Input"]),
        (lambda: PrunedDense(4, 1.0, 0, 10), ["sparsity=1.0", "below 1"]),
        (lambda: PrunedDense(4, "most", 0, 10), ["sparsity='most'", "below 1"]),
        (lambda: PrunedDense(4, 0.5, 10, 10), ["begin_step=10", "end_step=10"]),
        (lambda: PrunedDense(4, 0.5, 0, 1.5), ["end_step=1.5", "whole"]),
        (lambda: PrunedDense(4, 0.5, True, 10), ["begin_step=True", "whole"]),
        (lambda: PrunedDense(4, 0.5, 0, 10, 0), ["every=0", "at least 1"]),
        (lambda: pruned().prune(1.5), ["step=1.5", "steps taken"]),
        (lambda: pruned().prune(-1), ["step=-1", "steps taken"]),
        (lambda: DepthwiseSeparable(4, padding="full"), ["padding='full'", '"same"']),
        (lambda: DepthwiseSeparable(4, groups=3), ["groups=3", "filters=4"]),
        (lambda: DepthwiseSeparable(4, groups=4).build((1, 2, 2, 2)), ["groups=4", "channels=2"]),
        (lambda: DepthwiseSeparable(4)(tf.ones([2, 3])), ["(2, 3)", "height"]),
        (lambda: TiedDense(L.Dense(3)), ["embedding=", "Embedding"]),
    ],
)
def test_bad_arguments_are_reported(build, facts):
    with pytest.raises(ValueError, match=re.escape(facts[0])) as error:
        build()
    assert [fact for fact in facts if fact not in str(error.value)] == []
