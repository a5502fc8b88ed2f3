"""Piecewise linear functions of numbers, against NumPy's."""

from __future__ import annotations

from statistics import NormalDist

import keras
import numpy as np

from shared_core.feature_layout import Column, FeatureLayout
from trainer_module.model.default_model import _numbers_of
from trainer_module.model.hinges import Hinges


def test_a_number_and_its_distance_beyond_each_knot():
    """Reference: the formula in NumPy; equal bit for bit, float32 throughout."""
    layer = Hinges(3)
    layer.build((None, 2))
    knots = np.array([[-1.0, 0.25, 2.0], [0.0, 0.5, 1.0]], np.float32)
    layer.knots.assign(knots)
    x = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    each = np.concatenate([x[:, :, None], np.maximum(x[:, :, None] - knots, 0)], axis=2)
    found = keras.ops.convert_to_numpy(layer(x))
    np.testing.assert_array_equal(found, each.reshape(50, 8))
    assert layer.compute_output_shape((50, 2)) == (50, 8)


def test_knots_begin_at_quantiles_of_the_normal_distribution():
    """Reference: the share of the standard normal distribution below each, within 1e-6."""
    layer = Hinges(8)
    layer.build((None, 3))
    for knots in keras.ops.convert_to_numpy(layer.knots):
        shares = [NormalDist().cdf(float(knot)) for knot in knots]
        np.testing.assert_allclose(shares, (np.arange(8) + 0.5) / 8, atol=1e-6)


def test_weights_of_the_outputs_are_any_piecewise_linear_function():
    """Reference: |x| bends at 0 alone: -x + 2 max(x, 0); within 1e-6."""
    layer = Hinges(1)
    layer.build((None, 1))
    x = np.linspace(-2, 2, 41, dtype=np.float32)[:, None]
    found = keras.ops.convert_to_numpy(layer(x)) @ np.array([[-1.0], [2.0]], np.float32)
    np.testing.assert_allclose(found, np.abs(x), atol=1e-6)


def test_only_scaled_numbers_get_hinges():
    kinds = ("z_score", "one_hot", "missing_indicator", "log1p+z_score", "cyclic", "none")
    columns = tuple(
        Column(name=f"c{i}", source="c", group="g", kind=kind, output="floats", position=i)
        for i, kind in enumerate(kinds)
    )
    layout = FeatureLayout(columns=columns)
    assert _numbers_of(layout, "floats", 6) == [0, 3]
    assert _numbers_of(layout, "another", 2) == [0, 1]
    assert _numbers_of(None, "floats", 2) == [0, 1]
