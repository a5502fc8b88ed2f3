"""Numbers of a column, gathered from what several analyzers kept; counts of its values."""

from __future__ import annotations

from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")

from transform.analyzers.fitted import keep, keep_record  # noqa: E402
from transform.analyzers.fitted_column import FittedColumn, fitted_columns  # noqa: E402
from transform.analyzers.present import PRESENT  # noqa: E402
from transform.analyzers.statistics import STATISTICS, FittedStatistics  # noqa: E402

A = FittedStatistics(4.0, 1.0, 0.5, 0.0, 2.0)  # type: ignore[arg-type]
B = FittedStatistics(3.0, 2.0, 0.25, -1.0, 5.0)  # type: ignore[arg-type]


def test_each_column_has_its_own(saved: Any) -> None:
    def function() -> Any:
        both = (tf.constant(pair, tf.float64) for pair in zip(A, B, strict=True))
        statistics = keep_record(FittedStatistics(*both), STATISTICS, ["a", "b"])
        filling = keep(tf.constant([1.5, 2.5], tf.float64), "filling", ["a", "b"])
        with tf.control_dependencies([keep(tf.constant([7]), PRESENT, ["word"])]):
            return statistics.mean + filling

    found = fitted_columns(saved(function))
    assert (found["a"].statistics, found["b"].statistics) == (A, B)
    assert found["b"].values == {"filling": 2.5}
    assert found["b"].order is None
    counts = {name: each.count for name, each in found.items()}
    assert counts == {"a": 4, "b": 3, "word": 7}
    assert FittedColumn().count is None
