"""One table for all id columns, against one embedding layer per column."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from trainer_module.model.default_model import PackedEmbedding


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


def test_saved_model_predicts_the_same():
    layer = PackedEmbedding([3, 5], 2, [0, -1], name="ids")
    again = PackedEmbedding.from_config(layer.get_config())
    assert (again.sizes, again.size, again.first_ids, again.name) == ([3, 5], 2, [0, -1], "ids")
