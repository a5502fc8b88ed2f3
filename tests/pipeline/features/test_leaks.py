"""Columns that give the label away, and columns that do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline.features.leaks import FEW_ROWS, find_leaks

ROWS = 200
RANDOM = np.random.default_rng(3)
PRICE = RANDOM.gamma(2.0, 100.0, ROWS)
SOLD = np.where(PRICE > 150.0, "yes", "no")
GRADE = np.asarray(["low", "middle", "high"])[np.digitize(PRICE, [100.0, 200.0])]


def rows(values: Any) -> list[list[Any]]:
    return [[value.item() if isinstance(value, np.generic) else value] for value in values]


@pytest.mark.parametrize(
    ("column", "label", "reason"),
    [
        (PRICE, PRICE, "equals the label in 100.0% of the rows"),
        (SOLD == "yes", SOLD, "maps one-to-one to the label ("),
        (np.log(PRICE), PRICE, "is in the label's order (rank correlation 1.0000)"),
        (-(PRICE**3), PRICE, "is in the label's order (rank correlation -1.0000)"),
        (PRICE, SOLD, "separates the label's 2 values by ranges of its own"),
        (PRICE, GRADE, "separates the label's 3 values"),
    ],
)
def test_leaks(column, label, reason):
    columns = {"found": rows(column), "label": rows(label), "noise": rows(RANDOM.normal(size=ROWS))}
    found = find_leaks(columns, "label")
    assert set(found) == {"found"}
    assert reason in found["found"]


@pytest.mark.parametrize(
    ("column", "label"),
    [
        (PRICE + RANDOM.normal(0, 20.0, ROWS), PRICE),
        (PRICE + RANDOM.normal(0, 20.0, ROWS), SOLD),
        (GRADE, SOLD),
        (RANDOM.permutation(PRICE), PRICE),
        ([None] * ROWS, PRICE),
        (["one"] * ROWS, SOLD),
        (np.arange(ROWS), SOLD),
    ],
)
def test_no_leaks(column, label):
    assert find_leaks({"a": rows(column), "label": rows(label)}, "label") == {}


def test_missing_values_do_not_hide_one():
    values = [[price] if i % 3 else None for i, price in enumerate(PRICE.tolist())]
    assert "equals" in find_leaks({"a": values, "label": rows(PRICE)}, "label")["a"]


def test_few_rows_tell_nothing():
    few = rows(PRICE[: FEW_ROWS - 1])
    assert find_leaks({"a": few, "label": few}, "label") == {}
