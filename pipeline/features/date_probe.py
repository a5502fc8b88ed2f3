"""Find the parts of a date that predict the label: a quick linear probe on held-out rows.

Each part becomes 0/1 columns, as it becomes ids in the model. Ridge regression on them is evaluated
on held-out rows in five folds. A numeric label is replaced by its ranks, classes by 0/1 columns.
The probe needs only sums of products over the sample, for any set of parts.
The rules are conservative, because a linear model does not detect interactions with other columns.
With fewer than 2,000 rows no part is dropped, and never all parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pipeline.features.column_facts import Rows, Value
from pipeline.features.date_counter import EPOCHS
from pipeline.features.date_facts import DateFacts, parts_of

DEFAULT_PARTS = ("hour", "weekday", "day", "month", "year")
FEWEST_ROWS = 200
ROWS_TO_DROP = 2_000
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
    if len(times) < FEWEST_ROWS or not default or not targets.any():
        return DateParts(default)
    probe = _Probe(_columns_of(times), targets)
    parts, dropped = list(default), []
    if "weekday" in default and "weekend" in dates.varying:
        weekend = probe.gains(["weekend"])
        if weekend.mean() > _WEEKEND and weekend.mean() >= probe.gains(["weekday"]).mean():
            parts[parts.index("weekday")] = "weekend"
    if len(times) >= ROWS_TO_DROP:
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
    parts = {"hour": (times - days).astype("m8[h]").astype(np.int64), **parts_of(days)}
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
