"""Each Arrow type as tf.Example holds it; the reference is the table of columns.py, by hand."""

from __future__ import annotations

import datetime
import decimal
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from components.arrow_example_gen.columns import as_lists, holes, kind_of

DAY = datetime.date(2013, 5, 6)
MOMENT = datetime.datetime(2013, 5, 6, 17, 30)
NAN = float("nan")


@pytest.mark.parametrize(
    ("column", "kind", "rows"),
    [
        (pa.array([0, None, -5], pa.int8()), "int", [[0], [], [-5]]),
        (pa.array([0, 2**63 - 1], pa.uint64()), "int", [[0], [2**63 - 1]]),
        (pa.array([True, False, None]), "int", [[1], [0], []]),
        (pa.array([0.0, -0.0, None, NAN, 1e300]), "float", [[0.0], [-0.0], [], [NAN], [np.inf]]),
        (pa.array([np.float16(1.5), None], pa.float16()), "float", [[1.5], []]),
        (pa.array([decimal.Decimal("1.25"), None]), "float", [[1.25], []]),
        (pa.array(["", None, "é"]), "string", [[b""], [], ["é".encode()]]),
        (pa.array(["x", None], pa.large_string()), "string", [[b"x"], []]),
        (pa.array([b"\xff", None]), "string", [[b"\xff"], []]),
        (pa.array([b"ab", None], pa.binary(2)), "string", [[b"ab"], []]),
        (pa.array([DAY, None]), "string", [[b"2013-05-06"], []]),
        (pa.array([DAY, None], pa.date64()), "string", [[b"2013-05-06"], []]),
        (pa.array([MOMENT], pa.timestamp("s")), "string", [[b"2013-05-06 17:30:00"]]),
        (pa.array([MOMENT], pa.timestamp("s", "UTC")), "string", [[b"2013-05-06 17:30:00Z"]]),
        (pa.array([datetime.timedelta(seconds=3)], pa.duration("ms")), "int", [[3000]]),
        (pa.array(["a", None, "a"]).dictionary_encode(), "string", [[b"a"], [], [b"a"]]),
        (pa.array([[0, None], None, []]), "int", [[0], [], []]),
        (pa.array([[None, 1.0], None, [0.0]]), "float", [[NAN, 1.0], [], [0.0]]),
        (pa.array([["a", None], None]), "string", [[b"a", b""], []]),
        (pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)), "float", [[1.0, 2.0], []]),
        (pa.array([[9], [1, 2], [None, 3]])[1:], "int", [[1, 2], [3]]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_values_of_each_type(column: pa.Array, kind: Any, rows: list[list[Any]]):
    assert kind_of(column.type) == kind
    found = as_lists(column, kind).to_pylist()
    assert [len(row) for row in found] == [len(row) for row in rows]
    for value, expected in zip(chain(*found), chain(*rows), strict=True):
        if isinstance(expected, float):
            np.testing.assert_array_equal(value, expected)
            assert np.signbit(value) == np.signbit(expected)
        else:
            assert value == expected


def test_an_integer_that_int64_does_not_hold_is_text():
    """As TFX reads it from a CSV file."""
    column = pa.array([2**63, None, 7], pa.uint64())
    assert as_lists(column, "string").to_pylist() == [[str(2**63).encode()], [], [b"7"]]


@pytest.mark.parametrize("value", [{"a": 1}, [[1]], [{"a": 1}]])
def test_nested_values_have_no_place_in_an_example(value: Any):
    assert kind_of(pa.array([value]).type) is None


def test_lists_that_a_missing_int_would_shorten():
    """A list of one missing value is a missing value; one of several loses its place."""
    column = pa.array([[1, 2], [None], None, [], [3, None, 4], [None, None]])
    assert holes(column).tolist() == [4, 5]
    assert holes(column[4:]).tolist() == [0, 1]
    assert holes(column[:4]).tolist() == []
