"""robust against NumPy in float64; tolerance 1e-12 relative."""

from __future__ import annotations

from typing import Any

import numpy as np


def test_it_is_the_formula(scaled_by: Any) -> None:
    x = np.random.default_rng(0).standard_cauchy([201, 2])
    lower, median, upper = np.quantile(x, [0.25, 0.5, 0.75], axis=0, method="inverted_cdf")
    np.testing.assert_allclose(
        scaled_by("robust", x), (x - median) / (upper - lower), rtol=1e-12, atol=1e-12
    )


def test_equal_quartiles_are_replaced_by_the_range(scaled_by: Any) -> None:
    x = np.asarray([[0.0]] * 9 + [[4.0]])
    assert scaled_by("robust", x, np.asarray([[4.0], [2.0]]))[:, 0].tolist() == [1.0, 0.5]
