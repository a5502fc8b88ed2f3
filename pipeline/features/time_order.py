"""Detect rows that follow each other in time, which a random split would put into both splits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pipeline.features.column_facts import ColumnFacts, DataFacts, Rows
from pipeline.features.date_probe import text_of, times_of
from pipeline.features.feature_rules import has_dates
from pipeline.features.id_rules import distinct_of

FEWEST_TIMES = 20
_OFFSET = re.compile(r"[T ].*([Zz]|[+-]\d{2}:?\d{2})$")
_IN_ORDER = 0.95  # of the steps between rows of different times
_EVEN = 0.5  # of the gaps between times, or of the times that an even series has
_EQUAL = 0.9  # of the times


class TimeOrder(NamedTuple):
    """The column that orders the rows.

    Attributes:
        column: Its name.
        problem: Why `split: {by: time}` cannot use it; "" if it can.
    """

    column: str
    problem: str = ""


def time_order(
    data: DataFacts, label: str, *, held_out: int, classes: bool = False
) -> TimeOrder | None:
    """Return the column of times that orders the rows; None if there is none.

    Rows are ordered by a column if they are in its order in the file, as events are, or if it is a
    series: the same number of rows at each time, at equal distances. Dates that only describe a
    row, as a date of birth does, are neither.

    Args:
        data: Statistics of the data.
        label: The column to predict.
        held_out: Percent of the rows for evaluation.
        classes: Whether the label is classes.
    """
    orders = list(_orders(data, data.values[label], label, held_out if classes else 0))
    return next((each for each in orders if not each.problem), orders[0] if orders else None)


def _orders(data: DataFacts, labels: Rows, label: str, held_out: int) -> Iterator[TimeOrder]:
    for facts in data.columns:
        if facts.name == label or facts.several or not has_dates(facts):
            continue
        assert facts.dates is not None
        times = times_of(facts.dates, data.values[facts.name])
        known = ~np.isnat(times)
        if 2 * known.sum() >= len(times) and _is_ordered(times[known], facts, data):
            yield TimeOrder(
                facts.name, _problem(facts, data.values[facts.name], times, labels, held_out)
            )


def _is_ordered(times: np.ndarray, facts: ColumnFacts, data: DataFacts) -> bool:
    """Return whether times are in order or a series.

    Args:
        times: Of the rows in a sample that have one, in the order of the file.
        facts: Statistics of the column.
        data: Statistics of the table.
    """
    seconds = times.astype(np.int64)
    different, rows = np.unique(seconds, return_counts=True)
    if len(different) < FEWEST_TIMES:
        return False
    steps = np.diff(seconds)
    later = float((steps[steps != 0] > 0).mean())
    if max(later, 1 - later) >= _IN_ORDER:
        return True
    gaps, counts = np.unique(np.diff(different), return_counts=True)
    usual, most = gaps[counts.argmax()], counts.max()
    # A sample has gaps, but the shortest remains the most frequent.
    covered = max(distinct_of(facts), len(different)) * usual / (different[-1] - different[0])
    is_even = max(most / counts.sum(), covered) >= _EVEN
    one_each = data.every == 1 or distinct_of(facts) >= _EQUAL * facts.present
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
