"""The dates of a column: their format, their range, and the parts that vary."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.data.tables import Rows, Value

_DAYS = (
    *("%Y{0}%m{0}%d", "%d{0}%m{0}%Y", "%m{0}%d{0}%Y", "%d{0}%m{0}%y", "%m{0}%d{0}%y"),
    *("%d{0}%b{0}%Y", "%d{0}%B{0}%Y", "%d{0}%b{0}%y", "%b{0}%d{0}%Y", "%Y{0}%b{0}%d"),
)
_OTHERS = ("%Y%m%d", "%b %d, %Y", "%B %d, %Y", "%d. %B %Y")
_TIMES = (
    *("", " %H:%M", " %H:%M:%S", "T%H:%M", "T%H:%M:%S"),
    *(" %I:%M %p", " %I:%M:%S %p", ", %H:%M"),
)
# The beginning of each format: strptime compiles a pattern for each format, about 350 per column.
_LIKE_A_DATE = re.compile(
    r"\s*(\d{1,4}[./ -]\s?\w{1,9}[./ -]\d{1,4}|[A-Za-z]{3,9}[./ -]\d{1,2}[./ ,-]|\d{8})"
)
_FRACTION = r"(:\d{2}:\d{2})[.,]\d*"  # of seconds, which %S accepts in Transform
_ISO = re.compile(
    r"(\d{4}-\d{2}-\d{2}(?:[Tt ]\d{2}:\d{2}(?::\d{2})?)?)"
    r"(?:(?<=:\d{2})(?:\.\d*)?(?:[Zz]|[+-]\d{2}:?\d{2})?)?"
)
EPOCHS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6}
_FIRST, _LAST = 631_152_000, 2_840_140_800  # 1990 and 2060, in seconds since 1970


@dataclass(frozen=True)
class DateFacts:
    """Statistics of dates.

    Attributes:
        first: First day.
        last: Last day.
        varying: Parts of `encode: date` that have more than one value: hour, weekday, day, month,
            year.
        form: Format in strptime's directives; None for ISO 8601 and for ints since 1970.
        doubt: Another format that also matches all values.
        unit: Unit of ints since 1970; None for texts.
        example: A value.
    """

    first: datetime.date
    last: datetime.date
    varying: tuple[str, ...]
    form: str | None = None
    doubt: str | None = None
    unit: str | None = None
    example: str = ""


def _guess_format(texts: Sequence[str]) -> tuple[str, str | None] | None:
    """Return the format in which all texts are dates of 1900 to 2100, and another such one.

    If day and month cannot be distinguished, the month is first with slashes, and the day is first
    otherwise; the other format is the second of the pair.
    """
    if not texts or not all(map(_LIKE_A_DATE.match, texts)):
        return None
    plain = [re.sub(_FRACTION, r"\1", text.strip()) for text in texts]
    days = [form.format(separator) for form in _DAYS for separator in "./- "]
    tried = [day + time for time in _TIMES for day in (*days, *_OTHERS)]
    forms = [form for form in tried if all(_is_date(text, form) for text in plain)]
    if not forms:
        return None
    if len(forms) > 1 and "/" in forms[0] and "%m/%d" in forms[1]:
        forms[:2] = forms[1], forms[0]
    return forms[0], forms[1] if len(forms) > 1 else None


def _is_date(text: str, form: str) -> bool:
    try:
        return datetime.datetime.strptime(text, form).year in range(1900, 2101)
    except ValueError:
        return False


def text_dates(texts: Sequence[str]) -> DateFacts | None:
    """Return the dates of distinct texts; None if they are not all dates in one format."""
    guess = None
    if not texts or not all(map(_ISO.fullmatch, texts)):
        guess = _guess_format(texts)
        if guess is None:
            return None
    form, doubt = guess or (None, None)
    return _facts(_times(texts, form), form=form, doubt=doubt, example=texts[0])


def number_dates(values: Sequence[int], low: int, high: int) -> DateFacts | None:
    """Return the dates of ints since 1970 or such as 20130506; None if they are none.

    `values` are distinct; `low` and `high` are the limits of all rows.
    """
    if low >= 19_000_101 and high <= 20_991_231:
        return text_dates([str(value) for value in values])
    for unit, per_second in EPOCHS.items():
        if low // per_second >= _FIRST and high // per_second <= _LAST:
            seconds = np.array([low, *values, high], np.int64) // per_second
            return _facts(seconds.astype("M8[s]"), unit=unit)
    return None


def _facts(times: np.ndarray, **more: str | None) -> DateFacts | None:
    times = times[~np.isnat(times)]
    if not len(times):
        return None
    days = times.astype("M8[D]")
    months = days.astype("M8[M]")
    parts = {  # each numbered in its own way
        "hour": (times - days).astype("m8[h]"),
        "weekday": days.astype(np.int64) % 7,
        "day": days - months,
        "month": months.astype(np.int64) % 12,
        "year": days.astype("M8[Y]"),
    }
    varying = (name for name, values in parts.items() if len(np.unique(values)) > 1)
    first, last = days.min().item(), days.max().item()
    return DateFacts(first, last, tuple(varying), **more)  # type: ignore[arg-type]


def times_of(dates: DateFacts, rows: Rows) -> np.ndarray:
    """Return `datetime64[s]` of each row's first value; NaT for none, or one that is no date."""
    values = [text_of(row[0]) if row else None for row in rows]
    if dates.unit is None:
        return _times([None if value is None else str(value) for value in values], dates.form)
    per_second = EPOCHS[dates.unit]
    times = [np.datetime64("NaT") if value is None else value // per_second for value in values]
    return np.array(times, "M8[s]")


def _times(texts: Sequence[str | None], form: str | None) -> np.ndarray:
    """Return `datetime64[s]` of texts; NaT for None, or one that is no date."""
    import pandas as pd

    values = pd.Series(texts, dtype=object)
    if form is None:  # local time: an offset is not applied
        values = values.str.extract(_ISO, expand=False).str.replace("[t ]", "T", regex=True)
        values = values.map(lambda text: text + "T00:00:00"[len(text) - 10 :], na_action="ignore")
        form = "%Y-%m-%dT%H:%M:%S"
    else:
        values = values.str.strip().str.replace(_FRACTION, r"\1", regex=True)
    return pd.to_datetime(values, format=form, errors="coerce").to_numpy().astype("M8[s]")


def text_of(value: Value) -> Value:
    """Return bytes as text, and other values as they are."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
