"""Bounds and what a missing number becomes, against NumPy; exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from transform.analyzers.order import OrderStatistics  # noqa: E402
from transform.analyzers.statistics import FittedStatistics  # noqa: E402
from transform.spec.group import Group  # noqa: E402
from transform.spec.scalers import Clip  # noqa: E402
from transform.steps.impute import clip, fill_values, limit  # noqa: E402

NAN = float("nan")


def test_each_column_has_its_own_bounds() -> None:
    x = np.asarray([[-5.0, -5.0, -5.0, NAN], [5.0, 5.0, 5.0, 5.0]])
    bounds = [None, Clip(min=0.0), Clip(max=1.0), Clip(min=-1.0, max=1.0)]
    found = clip(tf.constant(x), bounds).numpy()
    np.testing.assert_array_equal(found, [[-5.0, 0.0, -5.0, NAN], [5.0, 5.0, 1.0, 1.0]])


def test_learned_bounds_wait_and_nothing_to_clip_is_nothing() -> None:
    x = tf.constant([[5.0, 6.0]], tf.float64)
    assert clip(x, [None, Clip(quantiles=(0.1, 0.9))]) is x
    np.testing.assert_array_equal(limit(x, [0.0, 0.0], [1.0, 7.0]), [[1.0, 6.0]])


def _group(**options: Any) -> Group:
    return Group.model_validate({"name": "g", "columns": "x", **options})


def test_every_column_is_filled_by_its_group(analyze: Any) -> None:
    groups = [
        _group(scale="z_score"),
        _group(scale="robust"),
        _group(scale="none", impute={"constant": 9.0}),
        _group(scale="none", impute="most_frequent"),
    ]
    x = np.tile(np.asarray([1.0, 1.0, 4.0, NAN])[:, np.newaxis], 4)
    four = {
        name: tf.fill([4], tf.constant(value, tf.float64))
        for name, value in {
            "low": -np.inf,
            "high": np.inf,
            "mean": 2.0,
            "median": 1.5,
            "any": 0.0,
        }.items()
    }
    statistics = FittedStatistics(*(four[n] for n in ("any", "mean", "any", "any", "any")))
    order = OrderStatistics(*(four[n] for n in ("low", "high", "any", "median", "any")))

    def fill(rows: np.ndarray) -> Any:
        return fill_values(tf.constant(rows), groups, statistics, order)

    found = analyze(fill, [x[:2], x[2:]], x).numpy()
    assert found.tolist() == [2.0, 1.5, 9.0, 1.0]
