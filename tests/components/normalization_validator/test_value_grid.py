"""Bins of float32, against a search among their edges; exactly."""

from __future__ import annotations

import numpy as np

from components.normalization_validator.value_grid import BINS, bin_of, edges


def test_every_value_is_between_the_edges_of_its_bin():
    rng = np.random.default_rng(0)
    x = rng.normal(size=5000) * 2.0 ** rng.integers(-30, 20, 5000)
    x = np.concatenate([x, [0.0, 2.0**-20, 1.0, 2.0**12]]).astype(np.float32).astype(np.float64)
    found = bin_of(np.abs(x))
    np.testing.assert_array_equal(found, np.searchsorted(edges(), np.abs(x), side="right") - 1)
    # A bin of negative values is the mirror of one of positive values.
    mirrored = np.where(found == BINS // 2, found, BINS - 1 - found)
    np.testing.assert_array_equal(bin_of(-np.abs(x)), mirrored)


def test_there_is_a_bin_between_two_edges_each():
    assert edges().shape == (BINS + 1,)
    assert (np.diff(edges()) > 0).all()
