"""What is said of a column of which a scaler learned nothing."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("tensorflow")

from transform.analyzers.fitted_column import FittedColumn
from transform.analyzers.statistics import FittedStatistics
from transform.scale.scaler import unless_constant
from transform.spec.group import Group

GROUP = Group.model_validate({"name": "g", "columns": "x", "scale": "z_score"})


@pytest.mark.parametrize(
    ("count", "low", "high", "expected"),
    [
        (0.0, float("inf"), float("-inf"), {"note": "no value was there to fit: 0 everywhere"}),
        (3.0, 2.5, 2.5, {"note": "constant (2.5): 0 everywhere"}),
        (3.0, 2.5, 2.75, {"mean": 2.6}),
    ],
)
def test_a_note_takes_the_place_of_numbers(
    count: float, low: float, high: float, expected: dict[str, Any]
) -> None:
    fitted = FittedColumn(FittedStatistics(count, 2.6, 0.1, low, high))  # type: ignore[arg-type]
    assert unless_constant(lambda _: {"mean": 2.6})(GROUP, fitted) == expected
