"""The dates of a column: their format, range and varying parts, and which parts predict a label.

Days and times are counted over all rows, block by block. The probe of parts is quick and linear:
each part becomes 0/1 columns, as it becomes ids in the model, and ridge regression on them is
evaluated on held-out rows in five folds. A numeric label is replaced by its ranks, classes by 0/1
columns. The probe needs only sums of products over the sample, for any set of parts. Its rules are
conservative, because a linear model does not detect interactions with other columns. With fewer
than 2,000 rows no part is dropped, and never all parts.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.arrow_example_gen.columns import Kind
from pipeline.data.tables import Rows, Value

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


class _DateFormat(NamedTuple):
    """A format that matches all values.

    Attributes:
        form: Format in strptime's directives.
        doubt: Another format that also matches all values, or None.
        dates: The values parsed with `form`.
    """

    form: str
    doubt: str | None
    dates: tuple[datetime.datetime, ...]


def guess_format(values: Sequence[str]) -> _DateFormat | None:
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
    return _DateFormat(_supported(form), found[1][0] if len(found) > 1 else None, tuple(dates))


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


EPOCHS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6}
FIRST, LAST = 631_152_000, 2_840_140_800  # 1990 and 2060, in seconds since 1970
_EXAMPLES = 1_000
_DAY = 86_400
_MOST_DAYS = 100_000  # distinct days of a column: 270 years
_TIME = r"(?:[Tt ]|, )(?P<time>\d{1,2}:\d{2})(?::\d{2}(?:[.,]\d*)?)?(?P<half> ?[AaPp][Mm])?"
_ZONE = r"(?:[Zz]|[+-]\d{2}:?\d{2})?"
_TAIL = rf"{_TIME}{_ZONE}\s*$"


class DateCounter:
    """The days and times of texts, and of ints in each unit since 1970.

    Attributes:
        days: For texts: distinct parts before the time of day; None if a value is not a date.
        times: For texts: distinct times such as `17:30` or `5:30 PM`; empty if no value has one.
        without_time: For texts: whether a value has no time.
        examples: Up to 1,000 complete texts.
        epochs: For ints: unit -> days since 1970 and hours, for the units in which all values are
            times from 1990 to 2060.
    """

    def __init__(self, kind: Kind):
        """Create a counter without values."""
        self.days: set[str] | None = set() if kind == "string" else None
        self.times: set[str] = set()
        self.without_time = False
        self.examples: list[str] = []
        units = EPOCHS if kind == "int" else ()
        self.epochs: dict[str, tuple[set[int], set[int]]] = {unit: (set(), set()) for unit in units}

    def add(self, values: np.ndarray) -> None:
        """Add the distinct values of a block."""
        if self.days is not None:
            self._add_texts(values)
        for unit in list(self.epochs):
            self._add_numbers(values, unit)

    def _add_texts(self, values: np.ndarray) -> None:
        assert self.days is not None
        texts = pa.array(values, pa.string())
        # One value is enough to exclude most columns of texts.
        if not re.match(LIKE_A_DATE, values[0]) or not _all_match(texts):
            self.days, self.times = None, set()
            return
        room = _EXAMPLES - len(self.examples)
        self.examples += values[:room].tolist()
        parts = pc.extract_regex(texts, rf"{_TAIL}")
        # A text without a time has no struct.
        has_time = parts.is_valid()
        self.without_time |= not pc.all(has_time).as_py()
        days = pc.unique(pc.replace_substring_regex(texts, _TAIL, ""))
        self.days.update(days.to_pylist())
        found = parts.filter(has_time)
        if len(found):
            halves = pc.utf8_upper(pc.struct_field(found, [1]))
            joined = pc.binary_join_element_wise(pc.struct_field(found, [0]), halves, "")
            self.times.update(pc.unique(joined).to_pylist())
        if len(self.days) > _MOST_DAYS or len(self.times) > 2 * _DAY:
            self.days, self.times = None, set()

    def _add_numbers(self, values: np.ndarray, unit: str) -> None:
        seconds = values // EPOCHS[unit]
        if seconds.min() < FIRST or seconds.max() > LAST:
            del self.epochs[unit]
            return
        days, hours = self.epochs[unit]
        days.update(np.unique(seconds // _DAY).tolist())
        hours.update(np.unique(seconds % _DAY // 3600).tolist())


def _all_match(texts: pa.Array) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, f"^{LIKE_A_DATE}")).as_py())


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
    parts = {**_parts_of(days), "hour": np.array(sorted(hours))}
    varying = frozenset(name for name, values in parts.items() if len(np.unique(values)) > 1)
    first, last = days.min().item(), days.max().item()
    return DateFacts(first, last, varying, form, doubt, unit, example)


def _parts_of(days: np.ndarray) -> dict[str, np.ndarray]:
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
_ISO = r"^(\d{4}-\d{2}-\d{2}(?:[Tt ]\d{2}:\d{2}(?::\d{2})?)?)"


class DateParts(NamedTuple):
    """The parts of a date to use.

    Attributes:
        parts: Parts in the order of the YAML.
        dropped: Parts that vary but do not predict the label.
    """

    parts: tuple[str, ...]
    dropped: tuple[str, ...] = ()


def date_parts(dates: DateFacts, rows: Rows, labels: Rows, *, is_number: bool) -> DateParts:
    """Choose the parts of a date for a label.

    Args:
        dates: Dates of the column.
        rows: The column's values in the sample, from `DataFacts.values`.
        labels: The label's values in the sample.
        is_number: Whether the label is numeric; else it is a class.
    """
    default = tuple(part for part in DEFAULT_PARTS if part in dates.varying)
    times, targets = _pairs(dates, rows, labels, is_number=is_number)
    if len(times) < _FEWEST_ROWS or not default or not targets.any():
        return DateParts(default)
    probe = _Probe(_columns_of(times), targets)
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

    def __init__(self, columns: dict[str, np.ndarray], targets: np.ndarray):
        """Compute the sums.

        Args:
            columns: Part -> `[rows, columns]`.
            targets: `[rows, outputs]`.
        """
        order = np.random.default_rng(0).permutation(len(targets))
        self._places: dict[str, np.ndarray] = {}
        start = 1  # after the constant
        for part, values in columns.items():
            self._places[part] = np.arange(start, start + values.shape[1])
            start += values.shape[1]
        x = np.concatenate([np.ones((len(targets), 1)), *columns.values()], axis=1)
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


def _columns_of(times: np.ndarray) -> dict[str, np.ndarray]:
    """Return part -> `[rows, values]`, 0 or 1."""
    days = times.astype("M8[D]")
    parts = {"hour": (times - days).astype("m8[h]").astype(np.int64), **_parts_of(days)}
    return {
        part: (values[:, None] == np.unique(values)).astype(np.float64)
        for part, values in parts.items()
    }


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
    if not both:
        return np.empty(0, "M8[s]"), np.empty((0, 1))
    times = times_of(dates, [[value] for value, _ in both])
    # Integers stay int64: float64 would merge large ones.
    targets = np.array([text_of(label) for _, label in both], None if is_number else str)
    known = ~np.isnat(times)
    if is_number:
        known &= np.isfinite(targets)
    else:
        known &= targets != ""
    return times[known], _around_zero(targets[known], is_number=is_number)


def _around_zero(targets: np.ndarray, *, is_number: bool) -> np.ndarray:
    if not len(targets):
        return np.empty((0, 1))
    names, places, counts = np.unique(targets, return_inverse=True, return_counts=True)
    if is_number:  # ties get their mean rank; ranks reduce the influence of outliers
        ends = np.cumsum(counts)
        found = (ends - (counts - 1) / 2)[places][:, None]
    else:
        most = names[np.argsort(-counts, kind="stable")[:_CLASSES]]
        found = (targets[:, None] == most).astype(np.float64)
    return (found - found.mean(axis=0)) / max(1e-12, float(found.std()))


def times_of(dates: DateFacts, rows: Rows) -> np.ndarray:
    """Return `datetime64[s]` of each row's first value; NaT for none, or one that is no date."""
    import pandas as pd

    values = pd.Series([text_of(row[0]) if row else None for row in rows], dtype=object)
    if dates.unit is not None:
        seconds = values[values.notna()].astype(np.int64) // EPOCHS[dates.unit]
        read = pd.to_datetime(seconds, unit="s").reindex(values.index)
    elif dates.form is None:  # local time: an offset is not applied
        texts = values.str.extract(_ISO, expand=False).str.replace("[t ]", "T", regex=True)
        texts = texts.map(lambda text: text + "T00:00:00"[len(text) - 10 :], na_action="ignore")
        read = pd.to_datetime(texts, format="%Y-%m-%dT%H:%M:%S", errors="coerce")
    else:
        texts = values.map(str, na_action="ignore").str.strip()
        read = pd.to_datetime(texts, format=dates.form, errors="coerce")
    return read.to_numpy().astype("M8[s]")


def text_of(value: Value) -> Value:
    """Return bytes as text, and other values as they are."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
