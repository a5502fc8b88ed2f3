"""Texts of dates in formats of the user's, against Python's strptime, exactly."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

tf = pytest.importorskip("tensorflow")

from transform.encode.date_format import to_iso  # noqa: E402
from transform.spec.date_format import check_format  # noqa: E402
from transform.spec.encoders import Date  # noqa: E402

FORMATS = [
    "%d.%m.%Y",
    "%m/%d/%Y %H:%M",
    "%Y%m%d",
    "%d-%b-%y",
    "%B %d, %Y at %I:%M %p",
    "%y/%m/%d",
    "%H:%M:%S, %d (%b) %Y 100%%",
]
DATES = st.datetimes(datetime.datetime(1969, 1, 1), datetime.datetime(2068, 12, 31))


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=20)
@given(dates=st.lists(DATES, min_size=1, max_size=20))
def test_it_reads_what_strftime_writes(form: str, dates: list[datetime.datetime]) -> None:
    check_format(form)
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


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("%d.%m", "lacks %Y or %y"),
        ("%Y-%m", "lacks %d"),
        ("%d.%d.%Y %m", "has %d and %d"),
        ("%d %m %b %Y", "has %m and %b; use %m or %b or %B once"),
        ("%d %m %Y %z", "%z is not supported; use of %Y, %y"),
        ("%d %m %Y %I", "%I (1 to 12) and %p (AM or PM) go together"),
        ("%d %m %Y %M %M", "has %M twice"),
        ("%d %m %Y %", "ends with a percent sign"),
    ],
)
def test_an_invalid_format_is_refused(form: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"date\.format=") as caught:
        Date(parts=("month",), format=form)
    assert message in str(caught.value)


def test_a_unit_does_not_go_with_a_format() -> None:
    with pytest.raises(ValueError, match="leave one out"):
        Date(parts=("month",), format="%Y%m%d", unit="milliseconds")
