"""The pooled embedding against the dense matrix product that it stands for."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from text_layout import layout_of_texts

from trainer_module import TrainerConfig
from trainer_module.baselines.columns import Columns
from trainer_module.model.default_model import default_model
from trainer_module.model.model_context import ModelContext
from trainer_module.model.pooled_embedding import PooledEmbedding

IDS = np.array([[1, 0, 4], [3, 4, 4], [2, 2, 4]])
WEIGHTS = np.array([[0.8, 0.6, 0.0], [1.0, 0.0, 0.0], [0.5, 0.25, 0.0]], np.float32)


def as_matrix(ids, weights, count):
    """Ids and weights as one column per id."""
    matrix = np.zeros((len(ids), count))
    np.add.at(matrix, (np.arange(len(ids))[:, None], ids), weights)
    return matrix


def test_output_is_a_product_with_the_matrix_of_weights():
    """Reference: NumPy in float64; the gradient is the transposed product. Tolerance 1e-6."""
    layer = PooledEmbedding(5, 4)
    with tf.GradientTape() as tape:
        found = layer([IDS, WEIGHTS])
        loss = keras.ops.sum(found * np.arange(4.0, dtype="float32"))
    matrix = as_matrix(IDS, WEIGHTS, 5)
    np.testing.assert_allclose(found, matrix @ np.asarray(layer.table), atol=1e-6)
    gradient = tf.convert_to_tensor(tape.gradient(loss, layer.table.value))
    expected = matrix.T @ np.tile(np.arange(4.0), (3, 1))
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


def test_an_id_outside_counts_as_the_last():
    for unknown in [-1, -3, 5, 10**6]:
        layer = PooledEmbedding(5, 2)
        one = np.ones((1, 1), np.float32)
        np.testing.assert_array_equal(
            layer([np.array([[unknown]]), one]), layer([np.array([[4]]), one])
        )


def _context(layout):
    spec = {}
    for column in layout.columns:
        dtype = tf.int64 if column.is_id else tf.float32
        width = len(layout.of(column.output))
        spec[column.output] = tf.io.FixedLenFeature([width], dtype)
    return ModelContext(
        feature_spec=spec,
        transformed_schema=None,
        layout=layout,
        label="y",
        label_kind="binary",
        outputs=1,
        id_sizes={},
        config=TrainerConfig.model_validate({"label": "y", "model": {"knots": 2}}),
    )


@pytest.fixture(params=[True, False], ids=["packed", "unpacked"])
def context(request):
    return _context(layout_of_texts(packed=request.param))


def _features(context):
    """Two rows: x, then the terms 2 and 0 of `a`, no term of `b`; and a row without terms."""
    values = {
        "x": [0.5, -1.0],
        "a_term_0": [2, 4],
        "a_term_1": [0, 4],
        "a_weight_0": [0.8, 0.0],
        "a_weight_1": [0.6, 0.0],
        "c": [1, 2],
        "b_term_0": [8, 8],
        "b_weight_0": [0.0, 0.0],
    }
    return {
        name: np.stack([values[column.name] for column in context.layout.of(name)], axis=1).astype(
            spec.dtype.as_numpy_dtype
        )
        for name, spec in context.feature_spec.items()
    }


def test_the_default_model_pools_each_text(context, tmp_path):
    """Its dense layers see x, the embedding of c, and the sums of the texts; only x bends."""
    model = default_model(context)
    pools = [layer for layer in model.layers if isinstance(layer, PooledEmbedding)]
    assert [(pool.name, pool.count) for pool in pools] == [("text_0", 5), ("text_1", 9)]
    table = model.get_layer("embeddings")
    assert table.sizes == [3]
    first = next(layer for layer in model.layers if isinstance(layer, keras.layers.Dense))
    assert first.kernel.shape[0] == 1 + table.size + pools[0].size + pools[1].size + _bends(model)
    features = _features(context)
    seen = keras.Model(model.input, pools[0].output)(features)
    expected = 0.8 * np.asarray(pools[0].table)[2] + 0.6 * np.asarray(pools[0].table)[0]
    np.testing.assert_allclose(seen, [expected, np.zeros_like(expected)], atol=1e-6)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again(features), model(features), atol=1e-6)


def _bends(model):
    hinges = model.get_layer("hinges")
    assert hinges.input.shape[1] == 1  # x, and no weight of a term
    return hinges.output.shape[1]


def test_the_linear_baseline_has_a_column_per_term(context):
    columns = Columns(context, list(context.feature_spec))
    parts = columns.matrix(_features(context), 2)
    matrix = np.hstack([parts.dense, parts.sparse.toarray()])
    assert matrix.shape == (2, columns.width) == (2, 1 + 3 + 4 + 8)
    np.testing.assert_allclose(matrix[:, 0], [0.5, -1.0])
    np.testing.assert_array_equal(matrix[:, 1:4], [[0, 1, 0], [0, 0, 1]])
    np.testing.assert_allclose(matrix[:, 4:8], [[0.6, 0, 0.8, 0], [0, 0, 0, 0]])
    assert not matrix[:, 8:].any()
