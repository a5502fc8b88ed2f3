"""The text of each type, by hand; the reference of floats is Python's repr."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.arrow_example_gen.columns import as_lists, as_text, check_time_zone

MOMENT = datetime.datetime(2013, 5, 6, 17, 30)
UNITS = ("s", "ms", "us", "ns")


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array([True, None, False]), ["True", None, "False"]),
        (pa.array([-5, None], pa.int8()), ["-5", None]),
        (pa.array([2**64 - 1], pa.uint64()), [str(2**64 - 1)]),
        (pa.array([1.0, 0.1, -0.0, 1e20, math.nan, None]), ["1.0", "0.1", "-0.0", "1e+20", None]),
        (pa.array([0.1, 1e20], pa.float32()), ["0.1", "1e+20"]),
        (pa.array([np.float16(1.5), None], pa.float16()), ["1.5", None]),
        (pa.array([decimal.Decimal("1.50"), decimal.Decimal("0.00"), None]), ["1.50", "0.00"]),
        (pa.array([decimal.Decimal("-7")], pa.decimal128(5, 0)), ["-7"]),
        (pa.array([MOMENT.date(), None]), ["2013-05-06", None]),
        (pa.array([MOMENT.date()], pa.date64()), ["2013-05-06"]),
        (pa.array([datetime.timedelta(seconds=3)], pa.duration("ms")), ["3000"]),
        (pa.array(["a", "", None]), ["a", "", None]),
        (pa.array(["a"], pa.large_string()), ["a"]),
        (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        (pa.array([True, None]).dictionary_encode(), ["True", None]),
        (pa.nulls(2), [None, None]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_texts(column: pa.Array, texts: list[Any]):
    texts = texts + [None] * (len(column) - len(texts))
    assert as_text(column).to_pylist() == texts
    lists = as_lists(column, "string").to_pylist()
    assert lists == [[] if text is None else [text.encode()] for text in texts]


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        (None, "2013-05-06 17:30:00{}"),
        ("UTC", "2013-05-06 17:30:00{}Z"),
        ("Etc/UTC", "2013-05-06 17:30:00{}Z"),
        ("+00:00", "2013-05-06 17:30:00{}Z"),
        ("+05:30", "2013-05-06 23:00:00{}+05:30"),
        ("-03:00", "2013-05-06 14:30:00{}-03:00"),
        ("+14:00", "2013-05-07 07:30:00{}+14:00"),
        ("Etc/GMT+5", "2013-05-06 12:30:00{}-05:00"),
        ("Europe/Oslo", "2013-05-06 19:30:00{}+02:00"),
    ],
)
@pytest.mark.parametrize("unit", UNITS)
def test_timestamps(zone, text, unit):
    """Equal moments have one text in every unit."""
    for places, micros in (("", 0), (".500", 500_000), (".000250", 250)):
        if micros and (unit == "s" or (unit == "ms" and micros % 1000)):
            continue
        moment = pa.array([MOMENT.replace(microsecond=micros), None], pa.timestamp(unit, zone))
        assert as_text(moment).to_pylist() == [text.format(places), None]


def test_nanoseconds():
    assert as_text(pa.array([1], pa.timestamp("ns", "+01:00"))).to_pylist() == [
        "1970-01-01 01:00:00.000000001+01:00"
    ]
    assert as_text(pa.array([1], pa.time64("ns"))).to_pylist() == ["00:00:00.000000001"]


@pytest.mark.parametrize(
    "kind", [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
)
def test_times(kind):
    assert as_text(pa.array([datetime.time(1, 20, 30), None], kind)).to_pylist() == [
        "01:20:30",
        None,
    ]


@pytest.mark.parametrize("zone", ["Nowhere/X", "UTC+1", "+5", "CEST"])
def test_zones_that_nobody_knows(zone):
    with pytest.raises(ValueError, match=rf"no time zone '{zone}' is known".replace("+", r"\+")):
        check_time_zone(pa.timestamp("s", zone))


@given(st.lists(st.floats(width=32) | st.none()))
def test_floats_are_python_s(values):
    expected = [None if v is None or math.isnan(v) else repr(v) for v in values]
    assert as_text(pa.array(values, pa.float64())).to_pylist() == expected
    singles = as_text(pa.array(values, pa.float32())).to_pylist()
    for text, value in zip(singles, values, strict=True):
        assert text is None if value is None or math.isnan(value) else np.float32(text) == value
