"""Guess the format of a column's dates from its values, for `format` of `encode: date`."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_DAYS = (
    *("%Y{0}%m{0}%d", "%d{0}%m{0}%Y", "%m{0}%d{0}%Y", "%d{0}%m{0}%y", "%m{0}%d{0}%y"),
    *("%d{0}%b{0}%Y", "%d{0}%B{0}%Y", "%d{0}%b{0}%y", "%b{0}%d{0}%Y", "%Y{0}%b{0}%d"),
)
_OTHERS = ("%Y%m%d", "%b %d, %Y", "%B %d, %Y", "%d. %B %Y")
_SEPARATORS = "./- "
_TIMES = (
    *("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", "T%H:%M", "T%H:%M:%S"),
    *(" %I:%M %p", " %I:%M:%S %p", ", %H:%M"),
)
_YEARS = range(1900, 2101)
# Pattern of all formats' beginnings: strptime compiles a pattern for each format, about 400 per
# column.
LIKE_A_DATE = r"\s*(\d{1,4}[./ -]\s?\w{1,9}[./ -]\d{1,4}|[A-Za-z]{3,9}[./ -]\d{1,2}[./ ,-]|\d{8})"
_LIKE_A_DATE = re.compile(LIKE_A_DATE)


class DateFormat(NamedTuple):
    """A format that matches all values.

    Attributes:
        form: Format in strptime's directives.
        doubt: Another format that also matches all values, or None.
        dates: The values parsed with `form`.
    """

    form: str
    doubt: str | None
    dates: tuple[datetime.datetime, ...]


def guess_format(values: Sequence[str]) -> DateFormat | None:
    """Return the format that matches all values as dates from 1900 to 2100, or None.

    If day and month cannot be distinguished, the month is first with slashes, and the day is first
    otherwise; `doubt` names the other format.
    """
    found = []
    if not all(_LIKE_A_DATE.match(value) for value in values):
        return None
    for form in _formats():
        dates = _read(values, form)
        if dates:
            found.append((form, dates))
    if not found:
        return None
    if len(found) > 1 and "/" in found[0][0] and "%m/%d" in found[1][0]:
        found[:2] = found[1], found[0]
    form, dates = found[0]
    return DateFormat(_supported(form), found[1][0] if len(found) > 1 else None, tuple(dates))


def _formats() -> Iterator[str]:
    days = [form.format(separator) for form in _DAYS for separator in _SEPARATORS]
    for time in _TIMES:
        for day in (*days, *_OTHERS):
            yield day + time


def _read(values: Sequence[str], form: str) -> list[datetime.datetime]:
    dates = []
    for value in values:
        try:
            date = datetime.datetime.strptime(value.strip(), form)
        except ValueError:
            return []
        if date.year not in _YEARS:
            return []
        dates.append(date)
    return dates


def _supported(form: str) -> str:
    return form.replace(".%f", "")  # %S accepts fractions
