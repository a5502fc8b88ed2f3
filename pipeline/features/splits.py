"""How `init` splits rows: the rows of each split, and rows that follow each other in time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pipeline.common.errors import ConfigError
from pipeline.config.evaluation import FEW_JUDGED
from pipeline.data.tables import Rows
from pipeline.features.column_facts import ColumnFacts, DataFacts
from pipeline.features.dates import text_of, times_of
from pipeline.features.feature_rules import has_dates
from pipeline.features.id_rules import distinct_of, words_of
from shared_core.run_warning import RunWarning

LEAST_ROWS = 10
FEW_ROWS = 200  # with fewer, split shares are exact: hash-based shares vary too much
_LARGE_TABLE = 150  # rows: from here on, a fifth of them is enough for evaluation
_BY_HAND = "or write the YAML by hand, with files for evaluation in data.eval_path"


class SplitSizes(NamedTuple):
    """Rows of each split: the exact number in small tables, else the expected number."""

    train: int
    eval: int
    eval_percent: int

    @property
    def warnings(self) -> list[RunWarning]:
        """A warning if the model is evaluated on few rows; the run counts them again."""
        if self.eval >= FEW_JUDGED:
            return []
        rows = "1 row" if self.eval == 1 else f"{self.eval} rows"
        return [
            RunWarning(
                what=f"the model is evaluated on only {rows}, so its metrics and its blessing are "
                "unreliable",
                fix="Add rows, or increase data.eval_percent",
                number=self.eval,
            )
        ]


def eval_percent(rows: int) -> int:
    """Return the share of rows to hold out, in percent."""
    return 20 if rows >= _LARGE_TABLE else 30


def split_sizes(groups: Sequence[int], *, label: str, kind: str, path: str) -> SplitSizes:
    """Return the number of rows in the splits of labeled rows: one number, or one of each class.

    Raises:
        ConfigError: There are too few rows to train on some and evaluate on others.
    """
    rows = sum(groups)
    if rows < LEAST_ROWS:
        raise ConfigError(
            f"--data={path}: {rows} rows with a value of {label!r} are too few for training and "
            f"evaluation. Use at least {LEAST_ROWS}, {_BY_HAND}."
        )
    if kind == "binary" and min(groups) < 2:
        raise ConfigError(
            f"--data={path}: one of the two values of {label!r} is in only 1 row, which cannot be "
            f"used for both training and evaluation. Add rows with it, {_BY_HAND}."
        )
    percent = eval_percent(rows)
    train = sum(max(round((100 - percent) / 100 * group), 1) for group in groups)
    if train == rows:
        raise ConfigError(
            f"--data={path}: the {rows} rows have {len(groups)} different values of {label!r}, too "
            f"few rows of each to evaluate a model. Add rows, {_BY_HAND}."
        )
    return SplitSizes(train, rows - train, percent)


_OFFSET = re.compile(r"[T ].*([Zz]|[+-]\d{2}:?\d{2})$")
_IN_ORDER = 0.95  # of the steps between rows of different times
_EVEN = 0.5  # of the gaps between times, or of the times that an even series has
_EQUAL = 0.9  # of the times
_OF_BIRTH = {"birth", "birthday", "birthdate", "born", "dob"}


class _TimeOrder(NamedTuple):
    """The column that orders the rows, and why `split: {by: time}` cannot use it, or ""."""

    column: str
    problem: str = ""


def time_order(
    data: DataFacts, label: str, *, held_out: int, classes: bool = False
) -> _TimeOrder | None:
    """Return the column of times that orders the rows; None if there is none.

    Rows are ordered by a column if they are in its order in the file, as events are, or if it is a
    series: the same number of rows at each time, at equal distances. Dates that only describe a
    row, as a date of birth does, are neither. `held_out` percent of the rows are for evaluation.
    """
    orders = list(_orders(data, data.values[label], label, held_out if classes else 0))
    return next((each for each in orders if not each.problem), orders[0] if orders else None)


def _orders(data: DataFacts, labels: Rows, label: str, held_out: int) -> Iterator[_TimeOrder]:
    for facts in data.columns:
        if facts.name == label or facts.several or _OF_BIRTH & set(words_of(facts.name)):
            continue
        if not has_dates(facts):
            continue
        assert facts.dates is not None
        times = times_of(facts.dates, data.values[facts.name])
        if _is_ordered(times, distinct_of(facts), data):
            yield _TimeOrder(
                facts.name, _problem(facts, data.values[facts.name], times, labels, held_out)
            )


def _is_ordered(times: np.ndarray, distinct: int, data: DataFacts) -> bool:
    """Return whether the times of a sample, of so many distinct ones, are in order or a series."""
    present = len(times)
    times = times[~np.isnat(times)]
    if 2 * len(times) < present:
        return False
    seconds = times.astype(np.int64)
    different, rows = np.unique(seconds, return_counts=True)
    if len(different) < 20:
        return False
    steps = np.diff(seconds)
    later = float((steps[steps != 0] > 0).mean())
    if max(later, 1 - later) >= _IN_ORDER:
        return True
    gaps, counts = np.unique(np.diff(different), return_counts=True)
    usual, most = gaps[counts.argmax()], counts.max()
    # A sample has gaps, but the shortest remains the most frequent.
    covered = max(distinct, len(different)) * usual / (different[-1] - different[0])
    is_even = max(most / counts.sum(), covered) >= _EVEN
    one_each = data.every == 1 or distinct >= _EQUAL * data.rows
    return bool(is_even and one_each and np.bincount(rows).max() >= _EQUAL * len(rows))


def _problem(facts: ColumnFacts, rows: Rows, times: np.ndarray, labels: Rows, held_out: int) -> str:
    """Return why rows cannot be split by a column; "" if they can."""
    dates, labeled = facts.dates, np.array([row is not None for row in labels])
    assert dates is not None
    if missing := int(np.count_nonzero(np.isnat(times) & labeled)):
        return f"{missing:,} row has no time" if missing == 1 else f"{missing:,} rows have no time"
    if facts.type == "string":
        if dates.form is not None:
            return f"only times like 2013-05-31 can be sorted, and not {dates.example!r}"
        if len({_OFFSET.search(text_of(row[0])) is None for row in rows if row}) == 2:
            return "only some of its times have an offset from UTC"
    if not held_out:
        return ""
    first = np.quantile(times[labeled].astype(np.int64), 1 - held_out / 100)
    later = times.astype(np.int64) > first
    sides = [set(), set()]
    for row, side in zip(labels, later.tolist(), strict=True):
        if row is not None:
            sides[side].add(row[0])
    if len(sides[1]) > 1 and sides[1] <= sides[0]:
        return ""
    return "the latest rows have one class, or others than the earlier rows"
