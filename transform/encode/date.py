"""encode: date. Parts of a date, from epoch seconds or from text, as ids or points on the circle.

    part          ids      0 is
    minute        0..59
    hour          0..23
    weekday       0..6     Monday
    weekend       0..1     Monday to Friday; 1 is Saturday and Sunday
    day           0..30    the first of the month
    week          0..52    ISO 8601's week 1, the one with the first Thursday
    month         0..11    January
    quarter       0..3     January to March
    day_of_year   0..365   1 January
    year          0..129   1970 and before; 129 is 2099 and after

An int is a time since 1970-01-01T00:00:00 UTC. A text is `2013-05-06`, `2013-05-06T17:30` or
`2013-05-06 17:30:12.5`, with or without `Z` or `+02:00`: its parts are those that it shows, so that
an hour is the hour of the place, and an offset is not applied. Text that is no date is missing.

The calendar is the proleptic Gregorian one, in integers: Howard Hinnant, "chrono-Compatible
Low-Level Date Algorithms", https://howardhinnant.github.io/date_algorithms.html.

`_to_iso` reads texts in a format of the user's:

    directive  is                                    directive  is
    %Y         year, four digits                     %H         hour, 0 to 23
    %y         its last two: 69 is 1969, 68 is 2068  %I         hour, 1 to 12, with %p
    %m         month, 1 to 12                        %p         AM or PM
    %b, %B     its English name, short or whole      %M         minute
    %d         day                                   %S         second, with or without a fraction
    %%         a percent sign

They are those of Python's `strptime`; zeros before numbers may be left out where no digit follows.

With `cyclic`, a part p of period n becomes sin(2 pi p / n) and cos(2 pi p / n); missing is 0 and 0,
which no part is. With `elapsed`, the days since 1970 become a z-score; missing is 0, their mean.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from transform.block import Block, IdCount, tf
from transform.encode.encoder import Encoder, Inputs, Members, explain_nothing, option_of
from transform.scale.scaler import linear
from transform.spec.encoders import DIRECTIVES, MONTHS, Date, DatePart, directives

_PERIODS: dict[DatePart, int] = {
    "minute": 60,
    "hour": 24,
    "weekday": 7,
    "weekend": 2,
    "day": 31,
    "week": 53,
    "month": 12,
    "quarter": 4,
    "day_of_year": 366,
    "year": 130,
}
_DAY = 86_400
_LAST = 253_402_300_799  # 9999-12-31T23:59:59, and as far back from 1970: no overflow on the way
_ISO_TIME = r"[Tt ](\d{2}):(\d{2})(?::\d{2}(?:\.\d*)?)?(?:[Zz]|[+-]\d{2}:?\d{2})?"
_ISO = rf"(\d{{4}})-(\d{{2}})-(\d{{2}})(?:{_ISO_TIME})?"


class _Calendar(NamedTuple):
    """Dates and times; int64 `[...]` each, any value where the date is missing."""

    year: tf.Tensor
    month: tf.Tensor  # 1..12
    day: tf.Tensor  # 1..31
    hour: tf.Tensor
    minute: tf.Tensor
    missing: tf.Tensor  # bool


def _of_epoch(seconds: tf.Tensor) -> _Calendar:
    """Return the date of float64 seconds since 1970; missing where NaN, or beyond the year 9999."""
    # Not `not (x <= last)`: Grappler makes x > last of it, which differs for NaN.
    missing = tf.logical_or(tf.math.is_nan(seconds), tf.abs(seconds) > _LAST)
    whole = tf.cast(tf.floor(tf.where(missing, tf.zeros_like(seconds), seconds)), tf.int64)
    day, second = tf.math.floordiv(whole, _DAY), tf.math.floormod(whole, _DAY)
    # Years begin in March here, so that the leap day is the last of its year.
    shifted = day + 719_468
    era = tf.math.floordiv(shifted, 146_097)  # of 400 years
    of_era = shifted - era * 146_097
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * of_year + 2) // 153
    month = tf.where(shifted_month < 10, shifted_month + 3, shifted_month - 9)
    return _Calendar(
        year=year_of_era + era * 400 + tf.cast(month <= 2, tf.int64),
        month=month,
        day=of_year - (153 * shifted_month + 2) // 5 + 1,
        hour=second // 3600,
        minute=second // 60 % 60,
        missing=missing,
    )


def _of_text(texts: tf.Tensor) -> _Calendar:
    """Return the date of ISO 8601 texts as they show it; missing if invalid."""
    is_date = tf.strings.regex_full_match(texts, _ISO)
    # A date without a time has no digits in the last two groups: midnight.
    digits = tf.strings.regex_replace(texts, f"^{_ISO}$", r"\1\2\3\4\5", replace_global=False)
    digits = tf.strings.substr(tf.strings.join([digits, "0000"]), 0, 12)
    digits = tf.where(is_date, digits, tf.constant("197001010000"))
    number = tf.strings.to_number(digits, tf.int64)
    date, time = number // 10_000, number % 10_000
    year, month, day = date // 10_000, date // 100 % 100, date % 100
    hour, minute = time // 100, time % 100
    month_exists = tf.logical_and(month >= 1, month <= 12)
    lengths = tf.constant([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], tf.int64)
    length = tf.gather(lengths, tf.where(month_exists, month, 0))
    length += tf.cast(tf.logical_and(tf.equal(month, 2), _is_leap(year)), tf.int64)
    exists = tf.logical_and(tf.logical_and(day >= 1, day <= length), year >= 1)
    exists = tf.logical_and(exists, tf.logical_and(hour < 24, minute < 60))
    missing = tf.logical_not(tf.logical_and(is_date, exists))
    return _Calendar(year, month, day, hour, minute, missing)


def _part_of(date: _Calendar, part: DatePart) -> tf.Tensor:
    """Return the id of the module's table; int64, any value where the date is missing."""
    if part == "minute":
        return date.minute
    if part == "hour":
        return date.hour
    if part == "day":
        return date.day - 1
    if part == "month":
        return date.month - 1
    if part == "quarter":
        return (date.month - 1) // 3
    if part == "year":
        return tf.clip_by_value(date.year - 1970, 0, _PERIODS["year"] - 1)
    if part == "weekday":
        return _weekday(date)
    if part == "weekend":
        return tf.cast(_weekday(date) >= 5, tf.int64)
    day_of_year = _days(date.year, date.month, date.day) - _days(date.year, 1, 1)
    return _week(date, day_of_year) if part == "week" else day_of_year


def _days_of(date: _Calendar) -> tf.Tensor:
    """Return days since 1970-01-01 and a fraction; float64, any value where missing."""
    whole = tf.cast(_days(date.year, date.month, date.day), tf.float64)
    return whole + tf.cast(date.hour * 60 + date.minute, tf.float64) / (24 * 60)


def _weekday(date: _Calendar) -> tf.Tensor:
    return tf.math.floormod(_days(date.year, date.month, date.day) + 3, 7)  # 1970: a Thursday


def _week(date: _Calendar, day_of_year: tf.Tensor) -> tf.Tensor:
    """Return ISO 8601's week, from 0: that of the week's Thursday, which may be in another year."""
    thursday = day_of_year - _weekday(date) + 3
    years = [date.year + shift for shift in (-1, 0)]
    before, own = (_days(year + 1, 1, 1) - _days(year, 1, 1) for year in years)
    thursday = tf.where(
        thursday < 0, thursday + before, tf.where(thursday >= own, thursday - own, thursday)
    )
    return thursday // 7


def _days(year: tf.Tensor, month: tf.Tensor | int, day: tf.Tensor | int) -> tf.Tensor:
    """Return days since 1970-01-01."""
    month = tf.cast(month, tf.int64)
    year = year - tf.cast(month <= 2, tf.int64)
    era = tf.math.floordiv(year, 400)
    of_era = year - era * 400
    of_year = (153 * tf.where(month > 2, month - 3, month + 9) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _is_leap(year: tf.Tensor) -> tf.Tensor:
    by_4, by_100, by_400 = (tf.equal(year % n, 0) for n in (4, 100, 400))
    return tf.logical_and(by_4, tf.logical_or(tf.logical_not(by_100), by_400))


_TWO_DIGITS = r"\d{1,2}"
_PATTERNS: Mapping[str, str] = {
    "Y": r"\d{4}",
    "y": r"\d{2}",
    "m": _TWO_DIGITS,
    "d": _TWO_DIGITS,
    "H": _TWO_DIGITS,
    "I": _TWO_DIGITS,
    "M": _TWO_DIGITS,
    "S": r"\d{1,2}(?:[.,]\d*)?",
    "b": "|".join(f"{name[:3]}(?:{name[3:]})?\\.?" for name in MONTHS),
    "B": "|".join(f"{name[:3]}(?:{name[3:]})?\\.?" for name in MONTHS),
    "p": r"[ap]\.?m\.?",
}
assert set(_PATTERNS) == set(DIRECTIVES)


def _to_iso(texts: tf.Tensor, form: str) -> tf.Tensor:
    """Return `2013-05-06T17:30` for each text in a format that was checked, "" for the others.

    Whether the date exists is not asked: `_of_text` does.
    """
    found = directives(form)
    pattern = "".join(
        f"({_PATTERNS[part[1]]})" if part != "%%" and part[0] == "%" else re.escape(part[-1])
        for part in re.findall(r"%.|[^%]", form)
    )
    pattern = rf"(?i)\s*{pattern}\s*"
    fits = tf.strings.regex_full_match(texts, pattern)

    def text_of(directive: str) -> tf.Tensor:
        group = found.index(directive) + 1
        return tf.strings.regex_replace(texts, f"^{pattern}$", rf"\{group}", replace_global=False)

    def number_of(directive: str, default: int = 0) -> tf.Tensor:
        if directive not in found:
            return tf.fill(tf.shape(texts), tf.constant(default, tf.int64))
        digits = tf.where(fits, text_of(directive), tf.constant("0"))
        return tf.strings.to_number(digits, tf.int64)

    if "Y" in found:
        year = number_of("Y")
    else:
        year = number_of("y")
        year += tf.where(year < 69, tf.constant(2000, tf.int64), tf.constant(1900, tf.int64))
    name = next((each for each in ("b", "B") if each in found), None)
    month = number_of("m") if name is None else _month(text_of(name))
    if "I" in found:
        twelve = number_of("I")
        after_noon = tf.strings.regex_full_match(text_of("p"), r"(?i)p.*")
        hour = twelve % 12 + tf.where(
            after_noon, tf.constant(12, tf.int64), tf.constant(0, tf.int64)
        )
        fits = tf.logical_and(fits, tf.logical_and(twelve >= 1, twelve <= 12))
    else:
        hour = number_of("H")
    fields = [
        tf.strings.as_string(value, width=width, fill="0")
        for value, width in (
            (year, 4),
            (month, 2),
            (number_of("d"), 2),
            (hour, 2),
            (number_of("M"), 2),
        )
    ]
    year_text, month_text, day_text, hour_text, minute_text = fields
    day = tf.strings.join([year_text, month_text, day_text], "-")
    iso = tf.strings.join([day, tf.strings.join([hour_text, minute_text], ":")], "T")
    return tf.where(fits, iso, tf.constant(""))


def _month(names: tf.Tensor) -> tf.Tensor:
    short = tf.strings.lower(tf.strings.substr(names, 0, 3))
    known = tf.constant([name[:3] for name in MONTHS])
    return tf.argmax(tf.cast(tf.equal(short[..., None], known), tf.int64), axis=-1) + 1


_PER_SECOND = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6}
_CYCLIC_SUFFIXES = ("_sin", "_cos")
_ELAPSED = "_elapsed"


def _apply(inputs: Inputs, members: Members) -> list[Block]:
    """Encode each group by its own options: one block for its texts, one for its ints."""
    blocks = []
    for resolved in members.resolved:
        option = option_of(resolved)
        texts = tuple(n for n in resolved.columns if inputs.types[n] == "string")
        numbers = tuple(n for n in resolved.columns if inputs.types[n] != "string")
        if texts:
            raw = inputs.dense.texts(texts)
            iso = raw if option.format is None else _to_iso(raw, option.format)
            date = _of_text(iso)
            given = tf.not_equal(raw, "")
            blocks += _count_unread(_blocks(texts, date, option), raw, given, date, texts)
        if numbers:
            raw = inputs.dense.numbers(numbers)
            if option.format is None:
                date = _of_epoch(raw / _PER_SECOND[option.unit])
            else:
                date = _of_text(_to_iso(_digits(raw), option.format))
            given = tf.logical_not(tf.math.is_nan(raw))
            blocks += _count_unread(_blocks(numbers, date, option), raw, given, date, numbers)
    return blocks


def _count_unread(
    blocks: list[Block], raw: tf.Tensor, given: tf.Tensor, date: _Calendar, names: tuple[str, ...]
) -> list[Block]:
    """Return the blocks, the first of which counts the values that were no date."""
    from transform.analyzers.counts import with_unread

    return [with_unread(blocks[0], raw, given, date.missing, names), *blocks[1:]]


def _blocks(names: tuple[str, ...], date: _Calendar, option: Date) -> list[Block]:
    found = [_parts(names, date, option)] if option.parts else []
    return [*found, _elapsed(names, date)] if option.elapsed else found


def _elapsed(names: tuple[str, ...], date: _Calendar) -> Block:
    """Return the time of `[batch, columns]` dates as a number."""
    from transform.analyzers.moments import column_statistics

    days = _days_of(date)
    not_there = tf.fill(tf.shape(days), tf.constant(math.nan, tf.float64))
    fitted = column_statistics(tf.where(date.missing, not_there, days), name="elapsed_statistics")
    scaled = linear(days, fitted.mean, tf.sqrt(fitted.variance), fitted.varies)
    return Block(
        names=tuple(name + _ELAPSED for name in names),
        values=tf.cast(tf.where(date.missing, tf.zeros_like(scaled), scaled), tf.float32),
        sources=names,
        missing=date.missing,
        sizes=(None,) * len(names),
    )


def _digits(numbers: tf.Tensor) -> tf.Tensor:
    """Return 20130506.0 as "20130506", NaN as ""."""
    missing = tf.math.is_nan(numbers)
    whole = tf.cast(tf.where(missing, tf.zeros_like(numbers), numbers), tf.int64)
    return tf.where(missing, tf.constant(""), tf.strings.as_string(whole))


def _parts(names: tuple[str, ...], date: _Calendar, option: Date) -> Block:
    """Return the parts of `[batch, columns]` dates, part by part."""
    outputs: list[str] = []
    values: list[tf.Tensor] = []
    sizes: list[IdCount | None] = []
    for part in option.parts:
        ids = _part_of(date, part)
        period = _PERIODS[part]
        if option.cyclic:
            angle = tf.cast(ids, tf.float64) * (2.0 * math.pi / period)
            for suffix, wave in zip(_CYCLIC_SUFFIXES, (tf.sin(angle), tf.cos(angle)), strict=True):
                outputs += [f"{name}_{part}{suffix}" for name in names]
                wave = tf.where(date.missing, tf.zeros_like(wave), wave)
                values.append(tf.cast(wave, tf.float32))
                sizes += [None] * len(names)
        else:
            outputs += [f"{name}_{part}" for name in names]
            values.append(tf.where(date.missing, np.int64(period), ids))
            sizes += [IdCount(period + 1)] * len(names)
    return Block(
        names=tuple(outputs),
        values=tf.concat(values, axis=1),
        sources=names * len(values),
        missing=tf.tile(date.missing, [1, len(values)]),
        sizes=tuple(sizes),
    )


def _endings(option: Date) -> list[str]:
    """Return `_hour`, or `_hour_sin` and `_hour_cos`; then `_elapsed`."""
    suffixes = _CYCLIC_SUFFIXES if option.cyclic else ("",)
    parts = [f"_{part}{suffix}" for part in option.parts for suffix in suffixes]
    return [*parts, _ELAPSED] if option.elapsed else parts


def _kind_of(option: Date, ending: str) -> str:
    if ending == _ELAPSED:
        return "elapsed"
    return "cyclic" if option.cyclic else "date"


DATE = Encoder(
    name="date",
    takes={"string": "ISO 8601", "int": "epoch"},
    reads="own type",
    apply=_apply,
    endings=_endings,
    kind_of=_kind_of,
    explain=explain_nothing,
    is_aspect=True,
)
