"""One table for all id columns, against one embedding layer per column.

Shared ids: a training against full batches with a separate table per column whose gradients are
added, in float64 to 1e-12.
"""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import TrainerConfig, TrainStep
from trainer_module.data.feature_layout import Column, FeatureLayout
from trainer_module.model.default_model import PackedEmbedding, default_model
from trainer_module.model.model_context import ModelContext


def test_packed_embedding_equals_one_embedding_per_column():
    """Reference: keras.layers.Embedding per column with the same rows; equal bit for bit."""
    sizes, first = [3, 5, 2], [0, -1, 4]
    packed = PackedEmbedding(sizes, 4, first)
    packed.build((None, 3))
    table = np.random.default_rng(0).normal(size=(10, 4)).astype("float32")
    packed.table.assign(table)
    random = np.random.default_rng(1)
    ids = np.stack([random.integers(f, f + n, 50) for f, n in zip(first, sizes, strict=True)], 1)
    parts = []
    for column, (start, count) in enumerate(zip(np.cumsum([0, *sizes]), sizes, strict=False)):
        layer = keras.layers.Embedding(count, 4)
        layer.build(None)
        layer.set_weights([table[start : start + count]])
        parts.append(layer(ids[:, column] - first[column]))
    np.testing.assert_array_equal(packed(ids), np.concatenate(parts, axis=1))


@pytest.mark.parametrize("unknown", [-7, 3, 10**6])
def test_an_unknown_id_never_reads_another_column(unknown):
    packed = PackedEmbedding([3, 5], 2)
    ids = np.array([[unknown, 1]])
    np.testing.assert_array_equal(packed(ids), packed(np.array([[2, 1]])))


def shared_model():
    """The default model of three id columns, of which two have the same ids."""
    columns = [("from", 4, "places"), ("company", 3, None), ("to", 4, "places")]
    layout = FeatureLayout(
        columns=tuple(
            Column(
                name=name, source=name, group="g", kind="vocabulary", output="ids", position=i,
                vocabulary_size=size, shared_ids=shared,
            )
            for i, (name, size, shared) in enumerate(columns)
        )
    )  # fmt: skip
    model = {"hidden_units": [5], "activation": "tanh", "embedding_size": 2, "linear": True}
    config = TrainerConfig.model_validate({"model": model})
    spec = {"ids": tf.io.FixedLenFeature([3], tf.int64)}
    return default_model(ModelContext(spec, None, layout, "y", "regression", 1, {}, config))


def test_columns_with_shared_ids_have_one_embedding():
    model = shared_model()
    assert model.get_layer("embeddings").table.shape == (4 + 3, 2)
    assert model.get_layer("linear_ids").table.shape == (4 + 3 + 4, 1)
    ids = np.stack([np.arange(4), np.arange(4) % 3, np.arange(4)], axis=1)
    first, _, last = np.split(model.get_layer("embeddings")(ids).numpy(), 3, axis=1)
    np.testing.assert_array_equal(first, last)


def test_a_shared_table_gets_the_gradients_of_all_columns(strategies, float64):
    random = np.random.default_rng(0)
    windows = [
        (
            random.integers(0, (4, 3, 4), (11, 3)),
            random.normal(size=(11, 1)),
            random.uniform(size=11),
        )
        for _ in range(2)
    ]
    with strategies["mirrored2"].scope():
        features = keras.Input((3,), dtype="int64")
        table = PackedEmbedding([4, 3, 4], 2, starts=[0, 4, 0])
        model = keras.Model(features, keras.layers.Dense(1)(table(features)))
        step = TrainStep(
            model,
            keras.optimizers.SGD(0.5),
            "mse",
            strategy=strategies["mirrored2"],
            micro_batch_size=2,
        )
    shared, (kernel, bias) = table.table.numpy(), model.layers[-1].get_weights()
    separate = PackedEmbedding([4, 3, 4], 2)
    reference = keras.Sequential(
        [keras.Input((3,), dtype="int64"), separate, keras.layers.Dense(1)]
    )
    for ids, labels, weights in windows:
        step((ids, labels, weights))
        reference.set_weights([np.concatenate([shared, shared[:4]]), kernel, bias])
        _, (table_gradient, *others) = full_batch.full_batch_gradients(
            reference, "mlp", ids, labels, weights
        )
        shared[:7] -= 0.5 * table_gradient.numpy()[:7]
        shared[:4] -= 0.5 * table_gradient.numpy()[7:]
        kernel, bias = kernel - 0.5 * others[0].numpy(), bias - 0.5 * others[1].numpy()
    assert full_batch.error(model.get_weights(), [shared, kernel, bias]) < 1e-12


def test_a_saved_and_quantized_model_with_shared_ids_predicts_the_same(tmp_path):
    model = shared_model()
    ids = np.stack([np.arange(4), np.arange(4) % 3, np.arange(4)[::-1]], axis=1)
    expected = model({"ids": ids}).numpy()
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again({"ids": ids}), expected)
    table = again.get_layer("embeddings").table.numpy()
    again.quantize("int8")
    np.testing.assert_array_equal(again.get_layer("embeddings").table, table)
    np.testing.assert_allclose(again({"ids": ids}), expected, atol=0.02)


def test_saved_model_predicts_the_same():
    layer = PackedEmbedding([3, 5], 2, [0, -1], name="ids")
    again = PackedEmbedding.from_config(layer.get_config())
    assert (again.sizes, again.size, again.first_ids, again.name) == ([3, 5], 2, [0, -1], "ids")
    assert "starts" not in layer.get_config()  # older checkpoints have no such setting
