"""A calendar of tensors against Python's datetime, exactly.

Texts of dates in formats of the user's, against Python's strptime, exactly.

A place's clock, against zoneinfo; to the second.
"""

from __future__ import annotations

import datetime
import re
import zoneinfo
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

tf = pytest.importorskip("tensorflow")

from transform.encode.calendar import (  # noqa: E402
    PERIODS,
    _clock,
    days_of,
    of_epoch,
    of_text,
    part_of,
    to_iso,
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
    for part in PERIODS:
        found = part_of(calendar, part).numpy().tolist()
        assert found == [_parts(date)[part] for date in dates], part


@settings(max_examples=60)
@given(DATES)
def test_parts_of_epoch_seconds(dates: list[datetime.datetime]) -> None:
    seconds = [(date.replace(tzinfo=UTC) - EPOCH).total_seconds() // 1 for date in dates]
    _assert_parts(of_epoch(tf.constant(seconds, tf.float64)), dates)


FORMATS = ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%dT%H:%MZ"]


@settings(max_examples=60)
@given(DATES, st.sampled_from([*FORMATS, "%Y-%m-%dT%H:%M:%S+05:30"]))
def test_parts_of_iso_text_are_those_that_it_shows(
    dates: list[datetime.datetime], form: str
) -> None:
    texts = [date.strftime(form.replace("%Y", f"{date.year:04d}")) for date in dates]
    _assert_parts(of_text(tf.constant(texts)), dates)


def test_a_date_without_time_is_midnight() -> None:
    calendar = of_text(tf.constant(["2024-02-29"]))
    _assert_parts(calendar, [datetime.datetime(2024, 2, 29)])


def test_text_that_is_no_date_is_missing() -> None:
    for text in [
        *("", "yesterday", "2023-02-29", "2024-13-01", "2024-00-10", "2024-01-32", "2024-01-00"),
        *("2024-01-01T24:00", "2024-01-01T10:60", "2024-1-1", "0000-01-01", "2024-01-01T10"),
        *("1900-02-29", "2024-04-31", "2024-01-01T10:00 ", "01/02/2024", "20240101"),
    ]:
        assert of_text(tf.constant([text])).missing.numpy().tolist() == [True]


def test_seconds_beyond_the_year_9999_are_missing() -> None:
    seconds = tf.constant([np.nan, 253_402_300_799.0, 253_402_300_800.0, 1e300, -1e300], tf.float64)
    assert of_epoch(seconds).missing.numpy().tolist() == [True, False, True, True, True]


ZONES = ["Europe/Oslo", "America/Chicago", "Asia/Kolkata", "Australia/Lord_Howe", "Etc/GMT-5"]


def test_a_time_zone_counts_for_every_second_of_two_centuries() -> None:
    """Reference: datetime; around each change of the clock to the second, and at random."""
    for zone in ZONES:
        changes, _ = _clock(zone)
        near = (changes[:, np.newaxis] + np.arange(-2, 3)).ravel()
        rng = np.random.default_rng(1)
        seconds = np.concatenate([near, rng.integers(-2_100_000_000, 4_100_000_000, 500)])
        there = zoneinfo.ZoneInfo(zone)
        instants = [EPOCH + datetime.timedelta(seconds=int(second)) for second in seconds]
        expected = [instant.astimezone(there).replace(tzinfo=None) for instant in instants]
        _assert_parts(of_epoch(tf.constant(seconds, tf.float64), time_zone=zone), expected)


def test_a_text_with_an_offset_is_at_an_instant_and_one_without_is_there() -> None:
    """Reference: datetime; Oslo's clock goes back at 2024-10-27T03:00+02:00."""
    texts = [
        *("2024-10-27T00:59:59Z", "2024-10-27T01:00:00Z", "2024-10-26T22:30:00-0230"),
        *("2024-01-01T00:30+05:30", "2024-02-29 23:59:59.500+00:00", "1969-12-31T23:30:00-00:30"),
    ]
    zone = zoneinfo.ZoneInfo("Europe/Oslo")
    forms = [re.sub(r"([+-]\d\d)(\d\d)$", r"\1:\2", t.replace("Z", "+00:00")) for t in texts]
    instants = [datetime.datetime.fromisoformat(form) for form in forms]
    expected = [instant.astimezone(zone).replace(tzinfo=None) for instant in instants]
    _assert_parts(of_text(tf.constant(texts), time_zone="Europe/Oslo"), expected)
    there = ["2024-07-01", "2024-07-01T00:30", "2024-12-31 23:59:59"]
    expected = [datetime.datetime.fromisoformat(text) for text in there]
    _assert_parts(of_text(tf.constant(there), time_zone="Europe/Oslo"), expected)
    missing = of_text(tf.constant(["", "soon", "2024-13-01T00:00Z"]), time_zone="Europe/Oslo")
    assert missing.missing.numpy().all()


def test_elapsed_days_count_minutes_as_fractions() -> None:
    """Reference: Python's datetime; exact in float64 where the fraction is."""
    texts = ["1970-01-02T12:00", "1969-12-31T18:00:59", "2024-02-29"]
    found = days_of(of_text(tf.constant(texts))).numpy().tolist()
    leap_day = datetime.date(2024, 2, 29) - datetime.date(1970, 1, 1)
    assert found == [1.5, -0.25, leap_day.days]


FORMATS_of_date_format = [
    "%d.%m.%Y",
    "%m/%d/%Y %H:%M",
    "%Y%m%d",
    "%d-%b-%y",
    "%B %d, %Y at %I:%M %p",
    "%y/%m/%d",
    "%H:%M:%S, %d (%b) %Y 100%%",
]
DATES_of_date_format = st.datetimes(datetime.datetime(1969, 1, 1), datetime.datetime(2068, 12, 31))


@pytest.mark.parametrize("form", FORMATS_of_date_format)
@settings(max_examples=20)
@given(dates=st.lists(DATES_of_date_format, min_size=1, max_size=20))
def test_it_reads_what_strftime_writes(form: str, dates: list[datetime.datetime]) -> None:
    _check_format(form)
    texts = [date.strftime(form) for date in dates]
    read = [datetime.datetime.strptime(text, form) for text in texts]
    expected = [date.strftime("%Y-%m-%dT%H:%M").encode() for date in read]
    assert to_iso(tf.constant(texts), form).numpy().tolist() == expected


def test_what_people_write() -> None:
    texts = tf.constant([["6.5.2013", " 06.05.2013 "], ["06.05.13", "6. Mai 2013"], ["", "x"]])
    found = to_iso(texts, "%d.%m.%Y").numpy().tolist()
    assert found == [[b"2013-05-06T00:00"] * 2, [b"", b""], [b"", b""]]
    names = tf.constant(["6 MAY 2013", "06 Sept. 2013", "6 september 2013", "6 Sep 2013"])
    months = [text[5:7] for text in to_iso(names, "%d %b %Y").numpy().tolist()]
    assert months == [b"05", b"", b"09", b"09"]


def test_hours_of_a_half_day() -> None:
    texts = tf.constant(["1/2/2020 12:05 AM", "1/2/2020 12:05 pm", "1/2/2020 1:05 p.m."])
    found = to_iso(texts, "%m/%d/%Y %I:%M %p").numpy().tolist()
    assert [text[11:] for text in found] == [b"00:05", b"12:05", b"13:05"]
    assert to_iso(tf.constant(["1/2/2020 13:05 PM"]), "%m/%d/%Y %I:%M %p").numpy()[0] == b""
