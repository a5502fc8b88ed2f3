"""Parts of dates as ids and points on the circle, against Python's datetime; exactly.

Texts of dates in formats of the user's, against Python's strptime, exactly.
"""

from __future__ import annotations

import datetime
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

tf = pytest.importorskip("tensorflow")

from transform.encode.date import (  # noqa: E402
    _PERIODS,
    _days_of,
    _of_epoch,
    _of_text,
    _part_of,
    _to_iso,
)
from transform.spec.encoders import _check_format  # noqa: E402

UTC = datetime.timezone.utc
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)
DATES = st.lists(
    st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31)), min_size=1
)


def _parts(date: datetime.datetime) -> dict[str, int]:
    return {
        "minute": date.minute,
        "hour": date.hour,
        "weekday": date.weekday(),
        "day": date.day - 1,
        "week": date.isocalendar()[1] - 1,
        "month": date.month - 1,
        "weekend": int(date.weekday() >= 5),
        "quarter": (date.month - 1) // 3,
        "day_of_year": date.timetuple().tm_yday - 1,
        "year": min(max(date.year - 1970, 0), 129),
    }


def _assert_parts(calendar: Any, dates: list[datetime.datetime]) -> None:
    assert not calendar.missing.numpy().any()
    for part in _PERIODS:
        found = _part_of(calendar, part).numpy().tolist()
        assert found == [_parts(date)[part] for date in dates], part


@settings(max_examples=60)
@given(DATES)
def test_parts_of_epoch_seconds(dates: list[datetime.datetime]) -> None:
    seconds = [(date.replace(tzinfo=UTC) - EPOCH).total_seconds() // 1 for date in dates]
    _assert_parts(_of_epoch(tf.constant(seconds, tf.float64)), dates)


FORMATS = ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%dT%H:%MZ"]


@settings(max_examples=60)
@given(DATES, st.sampled_from([*FORMATS, "%Y-%m-%dT%H:%M:%S+05:30"]))
def test_parts_of_iso_text_are_those_that_it_shows(
    dates: list[datetime.datetime], form: str
) -> None:
    texts = [date.strftime(form.replace("%Y", f"{date.year:04d}")) for date in dates]
    _assert_parts(_of_text(tf.constant(texts)), dates)


def test_text_that_is_no_date_is_missing() -> None:
    _assert_parts(_of_text(tf.constant(["2024-02-29"])), [datetime.datetime(2024, 2, 29)])
    for text in [
        *("", "yesterday", "2023-02-29", "2024-13-01", "2024-00-10", "2024-01-32", "2024-01-00"),
        *("2024-01-01T24:00", "2024-01-01T10:60", "2024-1-1", "0000-01-01", "2024-01-01T10"),
        *("1900-02-29", "2024-04-31", "2024-01-01T10:00 ", "01/02/2024", "20240101"),
    ]:
        assert _of_text(tf.constant([text])).missing.numpy().tolist() == [True]


def test_seconds_beyond_the_year_9999_are_missing() -> None:
    seconds = tf.constant([np.nan, 253_402_300_799.0, 253_402_300_800.0, 1e300, -1e300], tf.float64)
    assert _of_epoch(seconds).missing.numpy().tolist() == [True, False, True, True, True]


def test_elapsed_days_count_minutes_as_fractions() -> None:
    """Reference: Python's datetime; exact in float64 where the fraction is."""
    texts = ["1970-01-02T12:00", "1969-12-31T18:00:59", "2024-02-29"]
    found = _days_of(_of_text(tf.constant(texts))).numpy().tolist()
    leap_day = datetime.date(2024, 2, 29) - datetime.date(1970, 1, 1)
    assert found == [1.5, -0.25, leap_day.days]


WRITTEN = [
    "%d.%m.%Y",
    "%m/%d/%Y %H:%M",
    "%Y%m%d",
    "%d-%b-%y",
    "%B %d, %Y at %I:%M %p",
    "%y/%m/%d",
    "%H:%M:%S, %d (%b) %Y 100%%",
]
YEARS_OF_TWO_DIGITS = st.datetimes(datetime.datetime(1969, 1, 1), datetime.datetime(2068, 12, 31))


@pytest.mark.parametrize("form", WRITTEN)
@settings(max_examples=20)
@given(dates=st.lists(YEARS_OF_TWO_DIGITS, min_size=1, max_size=20))
def test_it_reads_what_strftime_writes(form: str, dates: list[datetime.datetime]) -> None:
    _check_format(form)
    texts = [date.strftime(form) for date in dates]
    read = [datetime.datetime.strptime(text, form) for text in texts]
    expected = [date.strftime("%Y-%m-%dT%H:%M").encode() for date in read]
    assert _to_iso(tf.constant(texts), form).numpy().tolist() == expected


def test_what_people_write() -> None:
    texts = tf.constant([["6.5.2013", " 06.05.2013 "], ["06.05.13", "6. Mai 2013"], ["", "x"]])
    found = _to_iso(texts, "%d.%m.%Y").numpy().tolist()
    assert found == [[b"2013-05-06T00:00"] * 2, [b"", b""], [b"", b""]]
    names = tf.constant(["6 MAY 2013", "06 Sept. 2013", "6 september 2013", "6 Sep 2013"])
    months = [text[5:7] for text in _to_iso(names, "%d %b %Y").numpy().tolist()]
    assert months == [b"05", b"", b"09", b"09"]


def test_hours_of_a_half_day() -> None:
    texts = tf.constant(["1/2/2020 12:05 AM", "1/2/2020 12:05 pm", "1/2/2020 1:05 p.m."])
    found = _to_iso(texts, "%m/%d/%Y %I:%M %p").numpy().tolist()
    assert [text[11:] for text in found] == [b"00:05", b"12:05", b"13:05"]
    assert _to_iso(tf.constant(["1/2/2020 13:05 PM"]), "%m/%d/%Y %I:%M %p").numpy()[0] == b""


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
