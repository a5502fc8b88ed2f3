"""log1p against NumPy; tolerance 1e-15 relative."""

from __future__ import annotations

from typing import Any

import numpy as np


def test_it_is_odd_and_finite(scaled_by: Any) -> None:
    x = np.asarray([[0.0], [1.0], [1e-18], [1.7e308]])
    found = scaled_by("log1p", x)
    np.testing.assert_allclose(found, np.log1p(x), rtol=1e-15)
    np.testing.assert_array_equal(scaled_by("log1p", -x), -found)
