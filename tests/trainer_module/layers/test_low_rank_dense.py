"""LowRankDense: the variance of its outputs, and the best approximation of a Dense layer.

References: keras.layers.Dense and 2 / (inputs + units), to 5 % of 512 * 384 entries; NumPy's
singular value decomposition in float64, to 1e-6 of the largest value (1e-12 in a float64 layer).
"""

from __future__ import annotations

import keras
import numpy as np
import pytest

from trainer_module import LowRankDense

L = keras.layers


@pytest.mark.parametrize("rank", [1, 16, 256])
def test_outputs_start_with_the_variance_of_dense(rank):
    """Mean over layers: of rank 1, a single kernel's variance is far from the expected one."""
    rows = np.random.default_rng(0).normal(size=(64, 512)).astype("float32")
    found = [np.var(LowRankDense(384, rank)(rows)) for _ in range(40)]
    expected = [np.var(L.Dense(384)(rows)) for _ in range(10)]
    assert np.mean(found) == pytest.approx(np.mean(expected), rel=0.05)
    assert np.mean(found) == pytest.approx(512 * 2 / (512 + 384), rel=0.05)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-12)])
@pytest.mark.parametrize("rank", [1, 3, 6])
def test_from_dense_is_the_best_approximation(rank, dtype, tolerance):
    rows = np.random.default_rng(0).normal(size=(9, 8)).astype(dtype)
    dense = L.Dense(6, "tanh", bias_initializer="normal", dtype=dtype, name="given")
    dense(rows)
    before = [w.copy() for w in dense.get_weights()]
    layer = LowRankDense.from_dense(dense, rank)
    left, values, right = np.linalg.svd(before[0].astype("float64"), full_matrices=False)
    kernel = (left[:, :rank] * values[:rank]) @ right[:rank]
    np.testing.assert_allclose(layer.u.numpy() @ layer.v.numpy(), kernel, atol=tolerance)
    np.testing.assert_allclose(layer(rows), np.tanh(rows @ kernel + before[1]), atol=tolerance * 9)
    assert (layer.name, layer.dtype_policy.name) == ("given", dtype)
    for weight, unchanged in zip(dense.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, unchanged)


def test_from_dense_without_bias_and_activation():
    rows = np.random.default_rng(0).normal(size=(9, 8)).astype("float32")
    dense = L.Dense(6, use_bias=False)
    expected = dense(rows)
    layer = LowRankDense.from_dense(dense, 6)
    np.testing.assert_allclose(layer(rows), expected, atol=1e-5)
    assert layer.bias is None
    dense.quantize("int8")
    with pytest.raises(ValueError, match=r"quantised \(int8\)"):
        LowRankDense.from_dense(dense, 2)


def test_it_has_the_weights_that_its_rank_says():
    model = keras.Sequential([keras.Input((5, 30)), LowRankDense(20, 4)])
    assert model.output_shape == (None, 5, 20)
    assert model.count_params() == 4 * (30 + 20) + 20
