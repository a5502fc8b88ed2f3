"""Each Arrow type as tf.Example holds it; the reference is the table of columns.py, by hand."""

from __future__ import annotations

import datetime
import decimal
import math
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.arrow_example_gen.columns import (
    as_lists,
    as_text,
    check_time_zone,
    holes,
    kind_of,
)

MOMENT = datetime.datetime(2013, 5, 6, 17, 30)
DAY = MOMENT.date()
NAN = float("nan")
VALUES = [
    (pa.array([0, None, -5], pa.int8()), "int", [[0], [], [-5]]),
    (pa.array([0, 2**63 - 1], pa.uint64()), "int", [[0], [2**63 - 1]]),
    (pa.array([True, False, None]), "int", [[1], [0], []]),
    (pa.array([0.0, -0.0, None, NAN, 1e300]), "float", [[0.0], [-0.0], [], [NAN], [np.inf]]),
    (pa.array([np.float16(1.5), None], pa.float16()), "float", [[1.5], []]),
    (pa.array([decimal.Decimal("1.25"), None]), "float", [[1.25], []]),
    (pa.array(["", None, "é"]), "string", [[b""], [], ["é".encode()]]),
    (pa.array([b"\xff", None]), "string", [[b"\xff"], []]),
    (pa.array([b"ab", None], pa.binary(2)), "string", [[b"ab"], []]),
    (pa.array([DAY, None]), "string", [[b"2013-05-06"], []]),
    (pa.array([MOMENT], pa.timestamp("s", "UTC")), "string", [[b"2013-05-06 17:30:00Z"]]),
    (pa.array([datetime.timedelta(seconds=3)], pa.duration("ms")), "int", [[3000]]),
    (pa.array(["a", None, "a"]).dictionary_encode(), "string", [[b"a"], [], [b"a"]]),
    (pa.array([[0], [None], None, []]), "int", [[0], [], [], []]),
    (pa.array([[None, 1.0], None, [0.0]]), "float", [[NAN, 1.0], [], [0.0]]),
    (pa.array([["a", None], None]), "string", [[b"a", b""], []]),
    (pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)), "float", [[1.0, 2.0], []]),
    (pa.array([[9], [1, 2], [3]])[1:], "int", [[1, 2], [3]]),
]


@pytest.mark.parametrize(("column", "kind", "rows"), VALUES, ids=[str(c.type) for c, *_ in VALUES])
def test_values_of_each_type(column: pa.Array, kind: Any, rows: list[list[Any]]):
    assert kind_of(column.type) == kind
    lists = as_lists(column, kind).to_pylist()
    assert [len(row) for row in lists] == [len(row) for row in rows]
    for value, expected in zip(chain(*lists), chain(*rows), strict=True):
        if isinstance(expected, float):
            np.testing.assert_array_equal(value, expected)
            assert np.signbit(value) == np.signbit(expected)
        else:
            assert value == expected


def test_nested_values_have_no_place_in_an_example():
    for value in ({"a": 1}, [[1]], [{"a": 1}]):
        assert kind_of(pa.array([value]).type) is None


def test_lists_that_a_missing_int_would_shorten():
    """A list of one missing value is a missing value; one of several loses its place."""
    column = pa.array([[1, 2], [None], None, [], [3, None, 4], [None, None]])
    assert holes(column).tolist() == [4, 5]
    assert holes(column[4:]).tolist() == [0, 1]
    assert holes(column[:4]).tolist() == []


TEXTS = [
    (pa.array([True, None, False]), ["True", None, "False"]),
    (pa.array([-5, None], pa.int8()), ["-5", None]),
    (pa.array([2**64 - 1], pa.uint64()), [str(2**64 - 1)]),
    (pa.array([0.1, -0.0, 1e20, NAN, None]), ["0.1", "-0.0", "1e+20", None, None]),
    (pa.array([0.1, 1e20], pa.float32()), ["0.1", "1e+20"]),
    (pa.array([np.float16(1.5), None], pa.float16()), ["1.5", None]),
    (pa.array([decimal.Decimal("1.50"), decimal.Decimal("0.00"), None]), ["1.50", "0.00", None]),
    (pa.array([decimal.Decimal("-7")], pa.decimal128(5, 0)), ["-7"]),
    (pa.array([DAY, None]), ["2013-05-06", None]),
    (pa.array([DAY], pa.date64()), ["2013-05-06"]),
    (pa.array([datetime.timedelta(seconds=3)], pa.duration("ms")), ["3000"]),
    (pa.array(["a", "", None], pa.large_string()), ["a", "", None]),
    (pa.array([True, None]).dictionary_encode(), ["True", None]),
    (pa.nulls(2), [None, None]),
    *(
        (pa.array([datetime.time(1, 20, 30), None], kind), ["01:20:30", None])
        for kind in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))
    ),
    (pa.array([1], pa.timestamp("ns", "+01:00")), ["1970-01-01 01:00:00.000000001+01:00"]),
    (pa.array([1], pa.time64("ns")), ["00:00:00.000000001"]),
]


@pytest.mark.parametrize(("column", "texts"), TEXTS, ids=[str(column.type) for column, _ in TEXTS])
def test_the_text_of_each_type(column: pa.Array, texts: list[Any]):
    assert as_text(column).to_pylist() == texts
    lists = as_lists(column, "string").to_pylist()
    assert lists == [[] if text is None else [text.encode()] for text in texts]


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        (None, "2013-05-06 17:30:00{}"),
        ("Etc/UTC", "2013-05-06 17:30:00{}Z"),
        ("+05:30", "2013-05-06 23:00:00{}+05:30"),
        ("+14:00", "2013-05-07 07:30:00{}+14:00"),
        ("Europe/Oslo", "2013-05-06 19:30:00{}+02:00"),
    ],
)
def test_timestamps(zone, text):
    """Equal moments have one text in every unit."""
    for unit in ("s", "ms", "us", "ns"):
        for places, micros in (("", 0), (".500", 500_000), (".000250", 250)):
            if micros and (unit == "s" or (unit == "ms" and micros % 1000)):
                continue
            moment = pa.array([MOMENT.replace(microsecond=micros), None], pa.timestamp(unit, zone))
            assert as_text(moment).to_pylist() == [text.format(places), None]


def test_zones_that_nobody_knows():
    for zone in ("Nowhere/X", "UTC+1", "+5", "CEST"):
        with pytest.raises(ValueError, match=r"no time zone .* is known") as error:
            check_time_zone(pa.timestamp("s", zone))
        assert repr(zone) in str(error.value)


@given(st.lists(st.floats(width=32) | st.none()))
def test_floats_are_python_s(values):
    expected = [None if v is None or math.isnan(v) else repr(v) for v in values]
    assert as_text(pa.array(values, pa.float64())).to_pylist() == expected
    singles = as_text(pa.array(values, pa.float32())).to_pylist()
    for text, value in zip(singles, values, strict=True):
        assert text is None if value is None or math.isnan(value) else np.float32(text) == value
