"""The model as a function of columns: unknown values, lists and values that it does not take."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pipeline.run.predictor import _InputChecks
from pipeline.run.raw_rows import model_rows


def category(position: int, low: int, high: int) -> dict:
    return {"column": "town", "output": "ids", "position": position, "ids": [low, high]}


def test_ids_that_are_negative_or_within_both_ends_are_unseen():
    checks = _InputChecks(categories=(category(0, 4, 5),))
    ids = np.array([-1, 0, 3, 4, 5, 6])
    (unseen,) = checks.unseen({"ids": ids}).values()
    assert unseen.tolist() == [True, False, False, True, True, False]


def test_a_value_is_unseen_if_any_output_of_its_column_shows_it():
    checks = _InputChecks(categories=(category(0, 1, 1), category(1, 7, 7)))
    found = checks.unseen({"ids": np.array([[1, 0], [0, 7], [0, 1], [1, 7]])})
    assert found["town"].tolist() == [True, True, False, True]


def test_a_list_with_a_text_among_numbers_is_wrong_in_its_row():
    lists = [[], ["1", "x", "z"], None, ["3"], ["u"]]
    batch = pa.RecordBatch.from_pydict({"n": pa.array(lists, pa.list_(pa.string()))})
    found = model_rows(batch, {"n": "int"}, ".")
    assert [each.row for each in found.wrong] == [1, 4]
    assert found.rows.tolist() == [0, 2, 3]
    assert found.columns["n"].to_pylist() == [[], [], [3]]
