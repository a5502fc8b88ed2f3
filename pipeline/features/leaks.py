"""Find columns that leak the label, or that alone predict it suspiciously well.

The value of such a column is rarely known at prediction time; a model that uses it looks perfect
until it is deployed. Statistics cannot distinguish a leak from a law (`y = 2x`), so there are
kinds:

    copy    the label under other names: equal to it, a one-to-one mapping, or a code or missing
            values that determine it
    law     a number in the label's order
    strong  a column that alone explains almost all of the label, or separates its classes

`choose` leaves out copies, and laws if the other columns also predict the label. It keeps strong
columns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

import numpy as np

from pipeline.common.plain_line import plain_line
from pipeline.features.column_facts import Rows
from pipeline.features.date_formats import guess_format
from shared_core.run_warning import RunWarning
from trainer_module.baselines.one_column import (
    ColumnScore,
    Target,
    codes_of_numbers,
    ranks,
    score_column,
    target_of_classes,
    target_of_numbers,
)

FEW_ROWS = 50
"""Minimum number of rows; with fewer, a leak may be due to chance."""

MOST_ROWS = 10_000
"""Maximum number of rows that are examined, evenly spaced."""

STRONG_NUMBER = 0.98
"""Minimum explained share of a numeric label's variance of a strong column."""

STRONG_CLASS = 0.8
"""Minimum Brier skill score of a strong column, such as a code that is right in 96 % of rows."""

NOTHING = 0.02
"""Explained share below which a column does not predict the label."""

MAY_GIVE_AWAY = (
    "these features may leak the label. Remove those whose values are not known when a "
    "prediction is made."
)

_ALIKE = 0.999
_MOST_WARNINGS = 5
_FEW_CLASSES = 20  # distinct numbers that are classes
_ROWS_PER_CODE = 5
_SHOWN = 30

Kind = Literal["copy", "law", "strong"]


class Leak(NamedTuple):
    """A column that leaks the label, or may leak it.

    Attributes:
        kind: The certainty of the leak.
        reason: Its relation to the label: the rest of a sentence that starts with its name.
    """

    kind: Kind
    reason: str


class Leaks(NamedTuple):
    """The leaks of a table.

    Attributes:
        found: Column -> leak.
        explained: Column -> share of the label that it alone explains, for each column.
    """

    found: dict[str, Leak]
    explained: dict[str, float]


class Choice(NamedTuple):
    """The decision on leaking columns, column -> reason."""

    left_out: dict[str, str]
    kept: dict[str, str]


def find_leaks(columns: Mapping[str, Rows], label: str) -> Leaks:
    """Find the columns that leak the label.

    Args:
        columns: Name -> the values of each row, None for none.
        label: The column to predict.

    Returns:
        The leaks; empty with fewer than `FEW_ROWS` rows with a label.
    """
    every = -(-len(columns[label]) // MOST_ROWS)
    labels = _Column.of(columns[label][::every])
    with_label = np.flatnonzero(labels.present)
    found, shares = {}, {}
    if len(with_label) < FEW_ROWS:
        return Leaks(found, shares)
    truth = _Truth.of(labels, with_label)
    if truth is None:
        return Leaks(found, shares)
    for name, rows in columns.items():
        if name != label:
            leak, share = _look_at(_Column.of(rows[::every]).taken(with_label), truth)
            shares[name] = share
            if leak is not None:
                found[name] = leak
    return Leaks(found, shares)


def choose(leaks: Leaks, usable: Collection[str]) -> Choice:
    """Choose the columns to leave out.

    Args:
        leaks: The leaks.
        usable: The columns that would be features.

    Returns:
        Copies and laws are left out. Laws are kept if no other usable column predicts anything of
        the label, and all are kept if there is no other usable column.
    """
    others = [name for name in usable if _kind(leaks, name) in (None, "strong")]
    keeps = {"strong"}
    if not any(leaks.explained.get(name, 0.0) >= NOTHING for name in others):
        keeps.add("law")
    if not others and not any(_kind(leaks, name) == "law" for name in usable):
        keeps.add("copy")
    sides: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for name, leak in leaks.found.items():
        if leak.kind in keeps:
            if name in usable:
                sides[1][name] = leak.reason
        else:
            sides[0][name] = leak.reason
    return Choice(*sides)


def warnings_of(kept: Mapping[str, str]) -> tuple[RunWarning, ...]:
    """Return a warning for each kept column, for the terminal and the YAML."""
    fix = "Remove it from features if its value is not known when a prediction is made"
    found = [
        RunWarning(what=f"{plain_line(name)} {reason}: it may leak the label", fix=fix, column=name)
        for name, reason in kept.items()
    ]
    more = len(found) - _MOST_WARNINGS
    if more > 0:
        what = f"{more} more such columns: the comments of the YAML list them"
        found[_MOST_WARNINGS:] = [RunWarning(what=what, number=more)]
    return tuple(found)


def _kind(leaks: Leaks, name: str) -> str | None:
    return leaks.found[name].kind if name in leaks.found else None


class _Column(NamedTuple):
    """A column's values: numbers, or texts as indices into the sorted distinct texts.

    Attributes:
        numbers: `[rows]`, NaN for none; for texts their indices.
        present: `[rows]`, bool.
        texts: The distinct texts, sorted; None for numbers.
    """

    numbers: np.ndarray
    present: np.ndarray
    texts: np.ndarray | None

    @classmethod
    def of(cls, rows: Rows) -> _Column:
        """Return the single value of each row; none, several, "" and NaN are missing."""
        values = [row[0] if row is not None and len(row) == 1 else None for row in rows]
        if set(map(type, values)) <= {int, float, bool, type(None)}:
            flat = np.array(values, np.float64)  # None is NaN
            flat[~np.isfinite(flat)] = np.nan
            return cls(flat, ~np.isnan(flat), None)
        texts = np.array([_text(value) for value in values], object)
        present = texts != ""
        different, places = np.unique(texts[present].astype(str), return_inverse=True)
        flat = np.full(len(texts), np.nan)
        flat[present] = np.ravel(places)
        return cls(flat, present, different)

    def taken(self, rows: np.ndarray) -> _Column:
        """Return the selected rows."""
        return self._replace(numbers=self.numbers[rows], present=self.present[rows])


def _text(value: object) -> str:
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return ""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


class _Truth(NamedTuple):
    """The label of the rows that have one.

    Attributes:
        column: The unmodified column.
        classes: `[rows]`: index of each row's value in the distinct values.
        distinct: Number of distinct values.
        target: The target that columns should explain.
    """

    column: _Column
    classes: np.ndarray
    distinct: int
    target: Target

    @classmethod
    def of(cls, labels: _Column, rows: np.ndarray) -> _Truth | None:
        column = labels.taken(rows)
        values, classes = np.unique(column.numbers, return_inverse=True)
        if len(values) < 2:
            return None
        is_number = labels.texts is None and len(values) > _FEW_CLASSES
        target = (
            target_of_numbers(column.numbers) if is_number else target_of_classes(np.ravel(classes))
        )
        return cls(column, np.ravel(classes), len(values), target)


def _look_at(column: _Column, truth: _Truth) -> tuple[Leak | None, float]:
    present, target = column.present, truth.target
    is_missing = (~present).astype(np.int64)
    by_missing = ColumnScore(0.0)
    if 0 < is_missing.sum() < len(present):
        by_missing = score_column(is_missing, target)
    best = by_missing
    if present.sum() >= FEW_ROWS:
        leak = _copy_or_law(column, truth)
        if leak is not None:
            return leak, 1.0
        for codes in _codes(column):
            of_present = score_column(codes, target, present)
            best = max(best, of_present)
            if not present.all():
                best = max(best, score_column(codes, target))
            few = column.texts is not None and len(column.texts) <= present.sum() // _ROWS_PER_CODE
            if few and _determines(of_present):
                return Leak("copy", "has codes that determine the label"), 1.0
    if target.classes and _determines(by_missing):
        return Leak("copy", "is missing in the rows of some labels and in no others"), 1.0
    if best.share >= (STRONG_CLASS if target.classes else STRONG_NUMBER):
        how = (
            f"alone predicts the label in {best.right:.1%} of held-out rows"
            if target.classes
            else f"alone explains {best.share:.2%} of the label's variance"
        )
        return Leak("strong", how), best.share
    return None, best.share


def _determines(found: ColumnScore) -> bool:
    """Return whether hardly any row has another class; more than the most frequent class alone."""
    wrong, usual = 1 - found.right, 1 - found.usual
    return usual > 0 and found.right >= _ALIKE and wrong <= 0.05 * usual


def _codes(column: _Column) -> list[np.ndarray]:
    """Return the codes with which a column may explain the label."""
    bins = codes_of_numbers(column.numbers)
    if column.texts is None:
        return [bins]
    of_texts = np.where(column.present, np.nan_to_num(column.numbers), len(column.texts))
    found = [of_texts.astype(np.int64)]
    if len(column.texts) > FEW_ROWS:
        found.append(bins)  # texts in sorted order: ISO dates, numbers of equal length
        dates = _dates(column)
        if dates is not None:
            found.append(codes_of_numbers(dates))
    return found


def _dates(column: _Column) -> np.ndarray | None:
    """Return the values in seconds, if they are dates whose texts do not sort by time."""
    import pandas as pd

    assert column.texts is not None
    some = [str(text) for text in column.texts[:: max(1, len(column.texts) // 100)]]
    guess = guess_format(some)
    if guess is None or guess.form.startswith("%Y"):
        return None
    days = pd.to_datetime(pd.Series(column.texts), format=guess.form, errors="coerce")
    seconds = (days - pd.Timestamp(1970, 1, 1)).dt.total_seconds().to_numpy(np.float64)
    found = np.full(len(column.numbers), np.nan)
    found[column.present] = seconds[column.numbers[column.present].astype(np.int64)]
    return found


def _copy_or_law(column: _Column, truth: _Truth) -> Leak | None:
    """Compare the rows that have a value with the label."""
    rows = column.present
    values, classes = column.numbers[rows], truth.classes[rows]
    labels = truth.column.numbers[rows]
    different, codes = np.unique(values, return_inverse=True)
    distinct = len(np.unique(classes))
    if len(different) < 2 or distinct < 2:
        return None
    both_numbers = column.texts is None and truth.column.texts is None
    equal = _equal_share(column, truth, rows)
    if equal >= _ALIKE:
        return Leak("copy", f"equals the label in {equal:.1%} of the rows")
    if both_numbers and distinct > _FEW_CLASSES:
        order = float(np.corrcoef(ranks(values), ranks(labels))[0, 1])
        if abs(order) >= _ALIKE:
            return Leak("law", f"is in the label's order (rank correlation {order:.4f})")
    pairs = np.unique(np.ravel(codes) * truth.distinct + classes)
    if len(pairs) == len(different) == distinct <= len(values) // _ROWS_PER_CODE:
        value, target = (_shown(each, rows) for each in (column, truth.column))
        return Leak("copy", f"maps one-to-one to the label ({value} = {target})")
    if column.texts is None and distinct <= 10 and len(different) > distinct:
        determined = len(pairs) == len(different)
        runs = 1 + int(np.count_nonzero(np.diff(classes[np.argsort(values, kind="stable")])))
        if determined and runs == distinct:
            return Leak(
                "strong", f"separates the label's {distinct} values by ranges of its values"
            )
        whole = (values == np.round(values)).all()
        few = len(different) <= len(values) // _ROWS_PER_CODE
        if whole and few and _determines(score_column(np.ravel(codes), _some(truth.target, rows))):
            return Leak("copy", "has codes that determine the label")
    return None


def _some(target: Target, rows: np.ndarray) -> Target:
    return target._replace(columns=target.columns[rows], half=target.half[rows])


def _equal_share(column: _Column, truth: _Truth, rows: np.ndarray) -> float:
    if column.texts is None and truth.column.texts is None:
        return float((column.numbers[rows] == truth.column.numbers[rows]).mean())
    if column.texts is None or truth.column.texts is None:
        return 0.0
    values, labels = (
        each.texts[each.numbers[rows].astype(np.int64)]  # type: ignore[index]
        for each in (column, truth.column)
    )
    return float((values == labels).mean())


def _shown(column: _Column, rows: np.ndarray) -> str:
    """Return the first value of the selected rows."""
    number = column.numbers[np.flatnonzero(rows)[0]]
    if column.texts is None:
        return repr(int(number) if number == round(number) else float(number))
    return repr(" ".join(str(column.texts[int(number)]).split())[:_SHOWN])
