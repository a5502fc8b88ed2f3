"""min_max against NumPy; exactly, or in long double where float64 would overflow."""

from __future__ import annotations

from typing import Any

import numpy as np


def test_an_unseen_value_may_leave_the_range(scaled_by: Any) -> None:
    x = np.asarray([[2.0], [6.0]])
    found = scaled_by("min_max", x, np.asarray([[2.0], [6.0], [4.0], [8.0], [0.0]]))
    assert found[:, 0].tolist() == [0.0, 1.0, 0.5, 1.5, -0.5]


def test_a_range_beyond_float64_does_not_overflow(scaled_by: Any) -> None:
    x = np.asarray([[-1.7e308], [0.3e308], [1.7e308]])
    wide = x.astype(np.longdouble)
    expected = (wide - wide.min()) / (wide.max() - wide.min())
    found = scaled_by("min_max", x)
    np.testing.assert_allclose(found, expected.astype(np.float64), rtol=1e-14)
