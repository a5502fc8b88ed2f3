"""Parts of dates as ids and as points on the circle; the calendar itself: test_calendar.py."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")


@pytest.fixture
def block(block_of: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`block(option, when)`; what cannot be read is counted in an analysis: test_cautions.py."""
    monkeypatch.setattr("transform.analyzers.counts.with_unread", lambda block, *_: block)
    return lambda option, when: block_of({"date": option}, {"when": when})


def test_ids_by_unit_with_one_for_missing(block: Any) -> None:
    for unit, scale in [("seconds", 1), ("milliseconds", 10**3), ("microseconds", 10**6)]:
        when = tf.SparseTensor([[0, 0], [2, 0]], [1_367_861_400 * scale, -1], [3, 1])
        made = block({"parts": ["hour", "weekday"], "unit": unit}, when)
        # 2013-05-06 17:30 UTC, a Monday; missing; 1969-12-31 23:59:59, a Wednesday
        assert made.values.numpy().tolist() == [[17, 0], [24, 7], [23, 2]]
        assert [size.total for size in made.sizes] == [25, 8]
        assert made.missing.numpy().tolist() == [[False] * 2, [True] * 2, [False] * 2]


def test_a_cyclic_part_is_a_point_on_the_circle_and_missing_none(block: Any) -> None:
    when = tf.constant(["2024-04-01T18:00", "", "2024-01-01"])
    made = block({"parts": ["hour", "month"], "cyclic": True}, when)
    assert made.names == ("when_hour_sin", "when_hour_cos", "when_month_sin", "when_month_cos")
    quarter = 2 * math.pi / 4
    expected = [
        [math.sin(3 * quarter), math.cos(3 * quarter), math.sin(quarter), math.cos(quarter)],
        [0.0, 0.0, 0.0, 0.0],
        [0.0, 1.0, 0.0, 1.0],
    ]
    np.testing.assert_allclose(made.values.numpy(), expected, atol=1e-7)
    assert made.values.dtype == tf.float32


def test_dates_in_a_format_of_the_users(block: Any) -> None:
    option = {"parts": ["day", "month"], "format": "%d.%m.%Y"}
    made = block(option, tf.constant(["06.05.2013", "", "31.02.2013", "2013-05-06"]))
    assert made.values.numpy().tolist() == [[5, 4], [31, 12], [31, 12], [31, 12]]
    whole = tf.SparseTensor([[0, 0], [2, 0]], [20_130_506, 7], [3, 1])
    made = block({"parts": ["day", "month"], "format": "%Y%m%d"}, whole)
    assert made.values.numpy().tolist() == [[5, 4], [31, 12], [31, 12]]
