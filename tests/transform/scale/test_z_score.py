"""z_score against NumPy in float64; tolerance 1e-12 relative."""

from __future__ import annotations

from typing import Any

import numpy as np


def test_it_is_the_formula_with_the_biased_variance(scaled_by: Any) -> None:
    x = np.random.default_rng(0).normal(3.0, 50.0, [200, 2])
    unseen = np.asarray([[1e6, -1e6]])
    expected = (unseen - x.mean(axis=0)) / x.std(axis=0)  # ddof 0
    np.testing.assert_allclose(scaled_by("z_score", x, unseen), expected, rtol=1e-12)


def test_larger_numbers_count_as_the_largest(scaled_by: Any) -> None:
    from transform.analyzers.statistics import LARGEST

    x = np.asarray([[0.0], [2.0]])
    found = scaled_by("z_score", x, np.asarray([[LARGEST], [1e300]]))
    assert found[0] == found[1] == LARGEST - 1.0
