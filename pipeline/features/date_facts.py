"""The dates of a column: their format, range and varying parts."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.features.date_counter import DateCounter
from pipeline.features.date_formats import guess_format

ISO = re.compile(r"\d{4}-\d{2}-\d{2}([Tt ]\d{2}:\d{2}(:\d{2}(\.\d*)?)?([Zz]|[+-]\d{2}:?\d{2})?)?")
_TIME_OF_FORMAT = re.compile(r"(T| |, )%[HI].*$")


@dataclass(frozen=True)
class DateFacts:
    """Statistics of all present dates.

    Attributes:
        first: First day.
        last: Last day.
        varying: Parts of `encode: date` that have more than one value, and `weekend`.
        form: Format in strptime's directives; None for ISO 8601 and for ints since 1970.
        doubt: Another format that also matches all values.
        unit: Unit of ints since 1970; None for texts.
        example: A value.
    """

    first: datetime.date
    last: datetime.date
    varying: frozenset[str]
    form: str | None = None
    doubt: str | None = None
    unit: str | None = None
    example: str = ""


def text_dates(
    days: Iterable[str], times: Iterable[str], examples: Sequence[str], *, without_time: bool
) -> DateFacts | None:
    """Return the dates of texts; None if they are not all dates in one format.

    Args:
        days: Parts before the time of day, of all values.
        times: Times such as `17:30` or `5:30 PM`, of all values that have one.
        examples: Some complete values.
        without_time: Whether a value has no time.
    """
    hours = {_hour(time) for time in times} | ({0} if without_time else set())
    written = sorted(set(days))
    if all(ISO.fullmatch(text) for text in examples):
        dates = [date for text in written if (date := _iso_day(text)) is not None]
        if not dates:
            return None
        return _facts(np.array(dates, "M8[D]"), hours, example=examples[0])
    whole, of_days = guess_format(examples), guess_format(written)
    if whole is None or of_days is None:
        return None
    dates = np.array([date.date() for date in of_days.dates], "M8[D]")
    time = _TIME_OF_FORMAT.search(whole.form)
    form = of_days.form + (time.group() if time else "")
    return _facts(dates, hours, form=form, doubt=of_days.doubt, example=examples[0])


def counted_dates(counter: DateCounter) -> DateFacts | None:
    """Return the dates of a column of texts or of ints since 1970; None if it has none."""
    if counter.days:
        return text_dates(
            counter.days, counter.times, counter.examples, without_time=counter.without_time
        )
    for unit, (days, hours) in counter.epochs.items():
        if days:
            return _facts(np.array(sorted(days), "M8[D]"), hours, unit=unit)
    return None


def _facts(
    days: np.ndarray,
    hours: set[int],
    *,
    form: str | None = None,
    doubt: str | None = None,
    unit: str | None = None,
    example: str = "",
) -> DateFacts:
    parts = {**parts_of(days), "hour": np.array(sorted(hours))}
    varying = frozenset(name for name, values in parts.items() if len(np.unique(values)) > 1)
    first, last = days.min().item(), days.max().item()
    return DateFacts(first, last, varying, form, doubt, unit, example)


def parts_of(days: np.ndarray) -> dict[str, np.ndarray]:
    """Return the parts of `datetime64[D]` days, numbered as in `encode: date` except for years."""
    months, years = days.astype("M8[M]"), days.astype("M8[Y]")
    weekday = (days.astype(np.int64) + 3) % 7  # 1970-01-01 was a Thursday
    thursdays = days + (3 - weekday)  # an ISO 8601 week belongs to the year of its Thursday
    weeks = (thursdays - thursdays.astype("M8[Y]")).astype(np.int64) // 7
    return {
        "week": weeks,
        "weekday": weekday,
        "weekend": (weekday >= 5).astype(np.int64),
        "day": (days - months).astype(np.int64),
        "month": months.astype(np.int64) % 12,
        "day_of_year": (days - years).astype(np.int64),
        "year": years.astype(np.int64) + 1970,
    }


def _hour(time: str) -> int:
    """Return the hour of `17:30` or `5:30 PM`."""
    hour = int(time.partition(":")[0])
    half = time.rstrip()[-2:].upper()
    return hour % 12 + 12 * (half == "PM") if half in ("AM", "PM") else hour


def _iso_day(text: str) -> datetime.date | None:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        return None  # as in Transform: 2023-02-30 is missing
