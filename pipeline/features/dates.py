"""The dates of a column: their format, range and varying parts, and which parts predict a label.

The probe of parts is quick and linear: each part becomes 0/1 columns, as it becomes ids in the
model, and ridge regression on them is evaluated on held-out rows in five folds. A numeric label is
replaced by its ranks, classes by 0/1 columns. The probe needs only sums of products over the
sample, for any set of parts. Its rules are conservative, because a linear model does not detect
interactions with other columns. With fewer than 2,000 rows no part is dropped, and never all parts.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipeline.data.tables import Rows, Value

_DAYS = (
    *("%Y{0}%m{0}%d", "%d{0}%m{0}%Y", "%m{0}%d{0}%Y", "%d{0}%m{0}%y", "%m{0}%d{0}%y"),
    *("%d{0}%b{0}%Y", "%d{0}%B{0}%Y", "%d{0}%b{0}%y", "%b{0}%d{0}%Y", "%Y{0}%b{0}%d"),
)
_OTHERS = ("%Y%m%d", "%b %d, %Y", "%B %d, %Y", "%d. %B %Y")
_SEPARATORS = "./- "
_TIMES = (
    *("", " %H:%M", " %H:%M:%S", "T%H:%M", "T%H:%M:%S"),
    *(" %I:%M %p", " %I:%M:%S %p", ", %H:%M"),
)
_YEARS = range(1900, 2101)
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


def _guess_format(texts: Sequence[str]) -> tuple[str, str | None] | None:
    """Return the format in which all texts are dates of 1900 to 2100, and another such one.

    If day and month cannot be distinguished, the month is first with slashes, and the day is first
    otherwise; the other format is the second of the pair.
    """
    if not texts or not all(map(_LIKE_A_DATE.match, texts)):
        return None
    plain = [re.sub(_FRACTION, r"\1", text.strip()) for text in texts]
    forms = [form for form in _formats() if all(_is_date(text, form) for text in plain)]
    if not forms:
        return None
    if len(forms) > 1 and "/" in forms[0] and "%m/%d" in forms[1]:
        forms[:2] = forms[1], forms[0]
    return forms[0], forms[1] if len(forms) > 1 else None


def _formats() -> Iterator[str]:
    days = [form.format(separator) for form in _DAYS for separator in _SEPARATORS]
    for time in _TIMES:
        for day in (*days, *_OTHERS):
            yield day + time


def _is_date(text: str, form: str) -> bool:
    try:
        return datetime.datetime.strptime(text, form).year in _YEARS
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
    varying = (name for name, values in _parts_of(times).items() if len(np.unique(values)) > 1)
    first, last = (time.astype("M8[D]").item() for time in (times.min(), times.max()))
    return DateFacts(first, last, frozenset(varying), **more)  # type: ignore[arg-type]


def _parts_of(times: np.ndarray) -> dict[str, np.ndarray]:
    """Return the parts of `datetime64[s]`, numbered as in `encode: date` except for years."""
    days = times.astype("M8[D]")
    months, years = days.astype("M8[M]"), days.astype("M8[Y]")
    weekday = (days.astype(np.int64) + 3) % 7  # 1970-01-01 was a Thursday
    thursdays = days + (3 - weekday)  # an ISO 8601 week belongs to the year of its Thursday
    weeks = (thursdays - thursdays.astype("M8[Y]")).astype(np.int64) // 7
    return {
        "hour": (times - days).astype("m8[h]").astype(np.int64),
        "week": weeks,
        "weekday": weekday,
        "weekend": (weekday >= 5).astype(np.int64),
        "day": (days - months).astype(np.int64),
        "month": months.astype(np.int64) % 12,
        "day_of_year": (days - years).astype(np.int64),
        "year": years.astype(np.int64) + 1970,
    }


DEFAULT_PARTS = ("hour", "weekday", "day", "month", "year")
_FEWEST_ROWS = 200
_ROWS_TO_DROP = 2_000
_MOST_ROWS = 20_000
_FOLDS = 5
_PENALTY = 10.0  # shrinkage of each 0/1 column, in rows
_GAIN = 0.002  # share of the label's variance
_WEEKEND = 0.005
_CLASSES = 10
_FINER = ("week", "day_of_year")  # than months


class DateParts(NamedTuple):
    """The parts of a date in the order of the YAML, and those that do not predict the label."""

    parts: tuple[str, ...]
    dropped: tuple[str, ...] = ()


def date_parts(dates: DateFacts, rows: Rows, labels: Rows, *, is_number: bool) -> DateParts:
    """Choose the parts of a date for a label, whose values are `labels`; of a number or a class."""
    default = tuple(part for part in DEFAULT_PARTS if part in dates.varying)
    times, targets = _pairs(dates, rows, labels, is_number=is_number)
    if len(times) < _FEWEST_ROWS or not default or not targets.any():
        return DateParts(default)
    probe = _Probe(_parts_of(times), targets)
    parts, dropped = list(default), []
    if "weekday" in default and "weekend" in dates.varying:
        weekend = probe.gains(["weekend"])
        if weekend.mean() > _WEEKEND and weekend.mean() >= probe.gains(["weekday"]).mean():
            parts[parts.index("weekday")] = "weekend"
    if len(times) >= _ROWS_TO_DROP:
        dropped = [part for part in parts if np.median(probe.gains([part])) <= 0.0]
    if len(dropped) == len(parts):
        dropped = []
    kept = [part for part in parts if part not in dropped]
    if "month" in default:
        kept += _season(probe, parts)
    return DateParts(tuple(kept), tuple(dropped))


def _season(probe: _Probe, parts: list[str]) -> list[str]:
    """Return the part finer than a month with the largest gain, if most folds agree; else []."""
    with_others = probe.gains(parts)
    # Also alone: next to parts that are all noise, more noise may look like a gain.
    added = {
        part: np.minimum(probe.gains([*parts, part]) - with_others, probe.gains([part]))
        for part in _FINER
    }
    best = max(_FINER, key=lambda part: added[part].mean())
    helps = added[best].mean() > _GAIN and np.sum(added[best] > 0) >= _FOLDS - 1
    return [best] if helps else []


class _Probe:
    """Sums of products of all columns and the label, by fold."""

    def __init__(self, parts: dict[str, np.ndarray], targets: np.ndarray):
        order = np.random.default_rng(0).permutation(len(targets))
        self._places: dict[str, np.ndarray] = {}
        columns = [np.ones((len(targets), 1))]
        start = 1  # after the constant
        for part, values in parts.items():
            columns.append((values[:, None] == np.unique(values)).astype(np.float64))
            self._places[part] = np.arange(start, start + columns[-1].shape[1])
            start += columns[-1].shape[1]
        x = np.concatenate(columns, axis=1)
        folds = [(x[rows], targets[rows]) for rows in np.array_split(order, _FOLDS)]
        self._products = [a.T @ a for a, _ in folds]
        self._with_target = [a.T @ b for a, b in folds]
        self._squares = [float(np.sum(b * b)) for _, b in folds]

    def gains(self, parts: Sequence[str]) -> np.ndarray:
        """Return the share of the held-out variance that the parts explain, in each fold."""
        places = np.concatenate([[0], *(self._places[part] for part in parts)]).astype(int)
        constant = places[:1]
        found = [
            1.0 - self._error(fold, places) / self._error(fold, constant) for fold in range(_FOLDS)
        ]
        return np.array(found)

    def _error(self, fold: int, places: np.ndarray) -> float:
        """Return the squared error on a fold of a fit to the other folds."""
        square = np.ix_(places, places)
        products = sum(p[square] for i, p in enumerate(self._products) if i != fold)
        towards = sum(t[places] for i, t in enumerate(self._with_target) if i != fold)
        penalty = np.full(len(places), _PENALTY)
        penalty[0] = 1e-9
        weights = np.linalg.solve(products + np.diag(penalty), towards)
        held = self._products[fold][square]
        error = (
            self._squares[fold]
            - 2.0 * float(np.sum(weights * self._with_target[fold][places]))
            + float(np.sum(weights * (held @ weights)))
        )
        return max(error, 1e-12)


def _pairs(
    dates: DateFacts, rows: Rows, labels: Rows, *, is_number: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return times and labels of rows that have both: `[rows]`, and centered `[rows, outputs]`."""
    step = max(1, len(rows) // _MOST_ROWS)
    both = [
        (row[0], label[0])
        for row, label in zip(rows[::step], labels[::step], strict=True)
        if row and label and len(row) == len(label) == 1
    ]
    # Integers stay int64: float64 would merge large ones.
    targets = np.array([text_of(label) for _, label in both], None if is_number else str)
    times = times_of(dates, [[value] for value, _ in both])
    known = ~np.isnat(times) & (np.isfinite(targets) if is_number else targets != "")
    if not known.any():
        return np.empty(0, "M8[s]"), np.empty((0, 1))
    return times[known], _around_zero(targets[known], is_number=is_number)


def _around_zero(targets: np.ndarray, *, is_number: bool) -> np.ndarray:
    names, places, counts = np.unique(targets, return_inverse=True, return_counts=True)
    if is_number:  # ties get their mean rank; ranks reduce the influence of outliers
        ends = np.cumsum(counts)
        columns = (ends - (counts - 1) / 2)[places][:, None]
    else:
        most = names[np.argsort(-counts, kind="stable")[:_CLASSES]]
        columns = (targets[:, None] == most).astype(np.float64)
    return (columns - columns.mean(axis=0)) / max(1e-12, float(columns.std()))


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
