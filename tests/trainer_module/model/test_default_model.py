"""One table for all id columns, against one embedding layer per column.

Shared ids: a training in replicas and in stages against full batches of a separate table per
column whose gradients are added, by a tape for each row, in float64 to 1e-12.
"""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from shared_core.feature_layout import Column, FeatureLayout
from trainer_module import StagedModel, TrainerConfig, TrainStep, split_model
from trainer_module.model.default_model import default_model
from trainer_module.model.layers import PackedEmbedding
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


def test_an_unknown_id_never_reads_another_column():
    for unknown in [-7, 3, 10**6]:
        packed = PackedEmbedding([3, 5], 2)
        ids = np.array([[unknown, 1]])
        np.testing.assert_array_equal(packed(ids), packed(np.array([[2, 1]])))


def test_the_hidden_layers_are_dense():
    """Reference: the formula in NumPy, to 1e-6."""
    spec = {
        "numbers": tf.io.FixedLenFeature([6], tf.float32),
        "id": tf.io.FixedLenFeature([1], tf.int64),
    }
    numbers = np.random.default_rng(0).normal(size=(40, 6)).astype("float32")
    ids = np.arange(40)[:, None] % 5
    config = TrainerConfig(model={"hidden_units": (8, 4), "dropout": 0.5})
    model = default_model(ModelContext(spec, None, None, "y", "binary", 1, {"id": (0, 5)}, config))
    table, *weights = model.get_weights()
    hidden = np.concatenate([numbers, table[ids[:, 0]]], axis=1)
    for kernel, bias in zip(weights[:4:2], weights[1:4:2], strict=True):
        hidden = np.maximum(hidden @ kernel + bias, 0)
    logits = hidden @ weights[4] + weights[5]
    found = model({"numbers": numbers, "id": ids})
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-logits)), atol=1e-6)


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


def network(table):
    """Three id columns -> 1 value, through a table of embeddings."""
    features = keras.Input((3,), dtype="int64")
    hidden = keras.layers.Dense(3, activation="tanh", name="hidden")(table(features))
    return keras.Model(features, keras.layers.Dense(1)(hidden))


def gradients_of_rows(shared, ids, labels):
    """Return the gradient of each row by each variable of a network with a shared table.

    Of a network with a table per column, of which those of the first and third column are equal:
    the gradients of these two tables are added.
    """
    table, *others = shared
    model = network(PackedEmbedding([4, 3, 4], 2))
    model.set_weights([np.concatenate([table, table[:4]]), *others])
    rows = []
    for i in range(len(ids)):
        _, (tables, *rest) = full_batch.full_batch_gradients(
            model, "mlp", ids[i : i + 1], labels[i : i + 1], None
        )
        added = tables.numpy()[:7]
        added[:4] += tables.numpy()[7:]
        rows.append([added, *(gradient.numpy() for gradient in rest)])
    return rows


@pytest.mark.parametrize(("placed", "clip"), [("mirrored2", 0.5), ("stages", None)])
def test_a_shared_table_gets_the_gradients_of_all_columns(strategies, float64, placed, clip):
    """Ragged windows, the last one with fewer rows than replicas; weights; a moving average."""
    random = np.random.default_rng(0)
    strategy = strategies["none" if placed == "stages" else placed]
    with strategy.scope():
        model = network(PackedEmbedding([4, 3, 4], 2, starts=[0, 4, 0], name="embeddings"))
        optimizer = keras.optimizers.SGD(0.5)
    if placed == "stages":
        model = StagedModel(split_model(model, ["embeddings"]), devices=["CPU:0", "CPU:1"])
    options = {"micro_batch_size": 2, "ema_momentum": 0.9, "clip_per_example": clip}
    step = TrainStep(model, optimizer, "mse", strategy=strategy, **options)
    weights = model.get_weights()
    averages = list(weights)
    for rows in (11, 7, 1):
        ids = random.integers(0, (4, 3, 4), (rows, 3))
        labels, importance = random.normal(size=(rows, 1)), random.uniform(0.1, 2.0, rows)
        step((ids, labels, importance))
        found = gradients_of_rows(weights, ids, labels)
        norms = [np.sqrt(sum((g**2).sum() for g in row)) for row in found]
        factors = importance * [1.0 if clip is None else min(1.0, clip / norm) for norm in norms]
        assert clip is None or max(norms) > clip
        for i, of_variable in enumerate(zip(*found, strict=True)):
            gradient = np.tensordot(factors, np.stack(of_variable), 1) / importance.sum()
            weights[i] = weights[i] - 0.5 * gradient
        averages = [0.9 * a + 0.1 * w for a, w in zip(averages, weights, strict=True)]
    assert full_batch.error(model.get_weights(), weights) < 1e-12
    assert full_batch.error([a.numpy() for a in step.averages], averages) < 1e-12


def test_a_saved_exported_or_quantized_model_with_shared_ids_predicts_the_same(tmp_path):
    model = shared_model()
    ids = np.stack([np.arange(4), np.arange(4) % 3, np.arange(4)[::-1]], axis=1)
    expected = model({"ids": ids}).numpy()
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again({"ids": ids}), expected)
    model.export(str(tmp_path / "export"), verbose=False)
    exported = tf.saved_model.load(str(tmp_path / "export"))
    np.testing.assert_allclose(exported.serve({"ids": ids}), expected, rtol=1e-6, atol=1e-6)
    table = again.get_layer("embeddings").table.numpy()
    again.quantize("int8")
    np.testing.assert_array_equal(again.get_layer("embeddings").table, table)
    np.testing.assert_allclose(again({"ids": ids}), expected, atol=0.02)
