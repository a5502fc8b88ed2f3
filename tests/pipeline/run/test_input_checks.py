"""Unknown values as the transformed features show them, without a model."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pipeline.run.input_checks import InputChecks, UnseenCategories


def category(position: int, low: int, high: int) -> dict:
    return {"column": "town", "output": "ids", "position": position, "ids": [low, high]}


def test_ids_that_are_negative_or_within_both_ends_are_unseen():
    checks = InputChecks(categories=(category(0, 4, 5),))
    ids = np.array([-1, 0, 3, 4, 5, 6])
    (unseen,) = checks.unseen({"ids": ids}).values()
    assert unseen.tolist() == [True, False, False, True, True, False]


def test_a_value_is_unseen_if_any_output_of_its_column_shows_it():
    checks = InputChecks(categories=(category(0, 1, 1), category(1, 7, 7)))
    found = checks.unseen({"ids": np.array([[1, 0], [0, 7], [0, 1], [1, 7]])})
    assert found["town"].tolist() == [True, True, False, True]


def test_a_date_is_missing_where_its_bit_is_set():
    date = {"column": "day", "output": "missing", "word": 1, "bit": 2}
    found = InputChecks(dates=(date,)).missing_dates(
        {"missing": np.array([[4, 0], [0, 4], [0, 3]])}
    )
    assert found["day"].tolist() == [False, True, False]


def test_the_column_with_the_most_unseen_values_comes_first():
    batch = pa.RecordBatch.from_pydict({"a": ["x", "y", "z"], "b": [b"k", b"l", b"m"]})
    unseen = UnseenCategories()
    assert unseen.describe() == ""
    unseen.add("a", np.array([1]), batch)
    unseen.add("b", np.array([2]), batch)
    unseen.add("b", np.array([0]), batch)
    assert unseen.describe().endswith("b (2 rows, such as 'm'); a (1 row, such as 'y')")
