"""(x - center) / spread against NumPy; exactly."""

from __future__ import annotations

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from transform.analyzers.moments import FittedStatistics  # noqa: E402
from transform.scale.scaler import linear, unit_of  # noqa: E402


def test_what_does_not_vary_or_has_no_spread_is_0() -> None:
    x = tf.constant([[3.0, 3.0, 3.0]], tf.float64)
    spread = tf.constant([2.0, 2.0, 0.0], tf.float64)
    found = linear(x, tf.ones([3], tf.float64), spread, tf.constant([True, False, True]))
    assert found.numpy().tolist() == [[1.0, 0.0, 0.0]]


def test_only_what_reaches_far_and_varies_has_another_unit() -> None:
    low = np.asarray([-1.7e308, 0.0, 1.7e308, np.inf])
    high = np.asarray([1.0, 1e300, 1.7e308, -np.inf])  # the last has no value
    statistics = FittedStatistics(*(tf.constant(v) for v in (low, low, low, low, high)))
    assert unit_of(statistics).numpy().tolist() == [0.25, 1.0, 1.0, 1.0]
