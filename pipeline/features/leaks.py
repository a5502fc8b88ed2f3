"""Find columns that leak the label, or that alone predict it suspiciously well.

The value of such a column is rarely known at prediction time; a model that uses it looks perfect
until it is deployed. Statistics cannot distinguish a leak from a law (`y = 2x`), so there are
kinds:

    copy    the label under other names: equal to it, a one-to-one mapping, or a code or missing
            values that determine it
    law     a number in the label's order, or that explains it, or whose ranges separate its classes
    strong  a column that alone explains much of the label

For copies and laws, 99.5 % of the rows or of the variance are enough. `choose` leaves out copies,
and laws if the other columns also predict the label. It keeps strong columns.

What a column explains is measured by the mean label per value or bin: each half of the rows is
predicted by the means of the other half,

    1 - Σ (y - mean of the other half's rows with the same code)² / Σ (y - mean of the other half)²

For classes, y is a 0/1 column per class, so that the score is the Brier skill score. A missing
value has a separate code.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

import numpy as np

from pipeline.common.plain_line import plain_line
from pipeline.data.tables import Rows
from pipeline.features.column_facts import FLOAT_MERGES
from shared_core.run_warning import RunWarning

_FEW_ROWS = 50  # with fewer, a leak may be due to chance
_MOST_ROWS = 10_000  # that are examined, evenly spaced
_STRONG_NUMBER = 0.98  # explained share of a numeric label's variance of a strong column
_STRONG_CLASS = 0.8  # Brier skill score of a strong column: a code that is right in 96 % of rows
_NOTHING = 0.02  # explained share below which a column does not predict the label

MAY_GIVE_AWAY = (
    "these features may leak the label. Remove those whose values are not known when a "
    "prediction is made."
)

_ALIKE = 0.995  # of the rows or of the variance
_MOST_WARNINGS = 5
_FEW_CLASSES = 20  # distinct numbers that are classes
_MOST_CODES = 20  # distinct numbers that are codes rather than amounts
_ROWS_PER_CODE = 5
_MOST_CLASSES = 50  # the others are merged
_FEW_VALUES = 200  # up to this many distinct numbers, each may have a code
_SHRINKAGE = 0.1  # rows with the overall mean that are added to each code


class _Leak(NamedTuple):
    """A leak: how sure it is, and the rest of a sentence that starts with the column's name."""

    kind: Literal["copy", "law", "strong"]
    reason: str


class _Leaks(NamedTuple):
    """The leaks of a table, and the share of the label that each column alone explains."""

    found: dict[str, _Leak]
    explained: dict[str, float]


class _Choice(NamedTuple):
    """The decision on leaking columns, column -> reason."""

    left_out: dict[str, str]
    kept: dict[str, str]


def find_leaks(columns: Mapping[str, Rows], label: str) -> _Leaks:
    """Find the columns that leak the label; none with fewer than 50 rows with a label."""
    every = -(-len(columns[label]) // _MOST_ROWS)
    labels = _Column.of(columns[label][::every])
    with_label = np.flatnonzero(labels.present)
    found, shares = {}, {}
    if len(with_label) < _FEW_ROWS:
        return _Leaks(found, shares)
    truth = _Truth.of(labels, with_label)
    if truth is None:
        return _Leaks(found, shares)
    for name, rows in columns.items():
        if name != label:
            leak, share = _look_at(_Column.of(rows[::every]).taken(with_label), truth)
            shares[name] = share
            if leak is not None:
                found[name] = leak
    return _Leaks(found, shares)


def choose(leaks: _Leaks, usable: Collection[str]) -> _Choice:
    """Choose the columns to leave out, among them the `usable` ones that would be features.

    Copies and laws are left out. Laws are kept if no other usable column predicts anything of the
    label, and all are kept if there is no other usable column.
    """
    others = [name for name in usable if _kind(leaks, name) in (None, "strong")]
    keeps = {"strong"}
    if not any(leaks.explained.get(name, 0.0) >= _NOTHING for name in others):
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
    return _Choice(*sides)


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


def _kind(leaks: _Leaks, name: str) -> str | None:
    return leaks.found[name].kind if name in leaks.found else None


class _Column(NamedTuple):
    """A column's values `[rows]`: numbers, or texts as indices into the sorted distinct texts.

    `numbers` are NaN where missing, and indices also of integers that float64 would merge. `texts`
    are the distinct texts, None for numbers; `exact` are the values.
    """

    numbers: np.ndarray
    present: np.ndarray
    texts: np.ndarray | None
    exact: np.ndarray

    @classmethod
    def of(cls, rows: Rows) -> _Column:
        """Return the single value of each row; none, several, "" and NaN are missing."""
        values = [row[0] if row is not None and len(row) == 1 else None for row in rows]
        kinds = set(map(type, values)) - {type(None)}
        is_number = kinds <= {int, float, bool}
        if is_number:
            numbers = np.array(values, np.float64)  # None is NaN
            numbers[~np.isfinite(numbers)] = np.nan
            present = ~np.isnan(numbers)
            largest = np.abs(numbers[present]).max(initial=0.0)
            if float in kinds or largest < FLOAT_MERGES:
                return cls(numbers, present, None, numbers)
            exact = np.array([value or 0 for value in values], np.int64)
        else:
            exact = np.array([_text(value) for value in values], object)
            present, numbers = exact != "", np.full(len(exact), np.nan)
        some = exact[present] if is_number else exact[present].astype(str)
        different, places = np.unique(some, return_inverse=True)
        numbers[present] = np.ravel(places)
        return cls(numbers, present, None if is_number else different, exact)

    def taken(self, rows: np.ndarray) -> _Column:
        """Return the selected rows."""
        return self._replace(
            numbers=self.numbers[rows], present=self.present[rows], exact=self.exact[rows]
        )


def _text(value: object) -> str:
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return ""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


class _Truth(NamedTuple):
    """The label of the rows that have one; `classes` are the indices of the distinct values."""

    column: _Column
    classes: np.ndarray
    distinct: int
    target: _Target

    @classmethod
    def of(cls, labels: _Column, rows: np.ndarray) -> _Truth | None:
        column = labels.taken(rows)
        values, classes = np.unique(column.numbers, return_inverse=True)
        if len(values) < 2:
            return None
        is_number = labels.texts is None and len(values) > _FEW_CLASSES
        target = (_target_of_numbers if is_number else _target_of_classes)(
            column.numbers if is_number else np.ravel(classes)
        )
        return cls(column, np.ravel(classes), len(values), target)


def _look_at(column: _Column, truth: _Truth) -> tuple[_Leak | None, float]:
    present, target = column.present, truth.target
    is_missing = (~present).astype(np.int64)
    by_missing = _Score(0.0)
    if 0 < is_missing.sum() < len(present):
        by_missing = _score_column(is_missing, target)
    best = by_missing
    if present.sum() >= _FEW_ROWS:
        leak = _copy_or_law(column, truth)
        if leak is not None:
            return leak, 1.0
        for codes in _codes(column):
            of_present = _score_column(codes, target, present)
            best = max(best, of_present)
            if not present.all():
                best = max(best, _score_column(codes, target))
    if target.classes and _determines(by_missing):
        shown = f"is missing or not by the label, in {by_missing.right:.1%} of the rows"
        return _Leak("copy", shown), 1.0
    if best.share >= (_STRONG_CLASS if target.classes else _STRONG_NUMBER):
        how = (
            f"alone predicts the label in {best.right:.1%} of held-out rows"
            if target.classes
            else f"alone explains {best.share:.2%} of the label's variance"
        )
        is_law = not target.classes and best.share >= _ALIKE
        return _Leak("law" if is_law else "strong", how), best.share
    return None, best.share


def _determines(found: _Score) -> bool:
    """Return whether hardly any row has another class; more than the most frequent class alone."""
    wrong, usual = 1 - found.right, 1 - found.usual
    return usual > 0 and found.right >= _ALIKE and wrong <= 0.1 * usual


def _codes(column: _Column) -> list[np.ndarray]:
    """Return the codes with which a column may explain the label."""
    bins = _codes_of_numbers(column.numbers)
    if column.texts is None:
        return [bins]
    of_texts = np.where(column.present, np.nan_to_num(column.numbers), len(column.texts))
    found = [of_texts.astype(np.int64)]
    if len(column.texts) > _FEW_ROWS:
        found.append(bins)  # texts in sorted order: ISO dates, numbers of equal length
    return found


def _copy_or_law(column: _Column, truth: _Truth) -> _Leak | None:
    """Compare the rows that have a value with the label."""
    rows = column.present
    values, classes = column.numbers[rows], truth.classes[rows]
    labels = truth.column.numbers[rows]
    different, codes = np.unique(values, return_inverse=True)
    distinct, usual = len(np.unique(classes)), np.bincount(classes).max() / len(classes)
    if len(different) < 2 or distinct < 2:
        return None
    if (column.texts is None) == (truth.column.texts is None):
        equal = _Score(0.0, float((column.exact[rows] == truth.column.exact[rows]).mean()), usual)
        if _determines(equal):
            return _Leak("copy", f"equals the label in {equal.right:.1%} of the rows")
    if column.texts is None and truth.column.texts is None and distinct > _FEW_CLASSES:
        order = float(np.corrcoef(_ranks(values), _ranks(labels))[0, 1])
        if order**2 >= _ALIKE:
            return _Leak("law", f"is in the label's order (rank correlation {order:.4f})")
        share = float(np.corrcoef(_clipped(values), _clipped(labels))[0, 1]) ** 2
        if share >= _ALIKE:
            return _Leak("law", f"alone explains {share:.2%} of the label's variance")
    pairs = np.unique(np.ravel(codes) * truth.distinct + classes)
    if len(pairs) == len(different) == distinct <= len(values) // _ROWS_PER_CODE:
        shown = " = ".join(_shown(each, rows) for each in (column, truth.column))
        return _Leak("copy", f"maps one-to-one to the label ({shown})")
    if not truth.target.classes:
        return None
    is_number = column.texts is None
    few = len(different) <= len(values) // _ROWS_PER_CODE
    are_few = len(different) <= _MOST_CODES
    are_codes = few and (not is_number or are_few or bool((values == np.round(values)).all()))
    right = _right_by_neighbors(values, classes)
    by_range = _determines(_Score(0.0, right, usual))
    is_range = by_range and is_number and not are_few
    target = truth.target._replace(columns=truth.target.columns[rows], half=truth.target.half[rows])
    by_code = _score_column(np.ravel(codes), target)
    if are_codes and not is_range and _determines(by_code):
        shown = f"has codes that determine the label in {by_code.right:.1%} of the rows"
        return _Leak("copy", shown)
    if by_range:
        how = f"separates the label's {distinct} values by ranges of its values"
        return _Leak("law", how if right == 1 else f"{how} in {right:.1%} of the rows")
    return None


def _clipped(values: np.ndarray) -> np.ndarray:
    """Return values without their tails, a few of which would decide a correlation."""
    found = np.clip(values, *np.quantile(values, [0.01, 0.99]))
    return found if np.ptp(found) > 0 else values


def _right_by_neighbors(values: np.ndarray, classes: np.ndarray) -> float:
    """Return the share of rows whose two lower or two higher neighbors have their class."""
    order = np.random.default_rng(0).permutation(len(values))  # of equal values
    ordered = classes[order[np.argsort(values[order], kind="stable")]]
    around = np.pad(ordered, 2, constant_values=-1)
    same = [around[k : k + len(ordered)] == ordered for k in range(5)]
    return float((same[0] & same[1] | same[3] & same[4]).mean())


def _shown(column: _Column, rows: np.ndarray) -> str:
    """Return the first value of the selected rows."""
    value = column.exact[np.flatnonzero(rows)[0]]
    if column.texts is not None:
        return repr(" ".join(value.split())[:30])
    return repr(int(value) if value == round(value) else float(value))


class _Target(NamedTuple):
    """A label as columns to predict `[rows, k]`, and the half `[rows]` of each row.

    For numbers the columns are the number and its rank; for classes, 0/1 columns.
    """

    columns: np.ndarray
    classes: bool
    half: np.ndarray


def _target_of_numbers(labels: np.ndarray) -> _Target:
    """Return the target of finite numbers `[rows]`; ranks limit the effect of a heavy tail."""
    scaled = labels - labels.mean()
    largest = np.abs(scaled).max()
    return _Target(
        np.stack([scaled / largest if largest > 0 else scaled, _ranks(labels)], axis=1),
        False,
        _halves(len(labels)),
    )


def _target_of_classes(labels: np.ndarray) -> _Target:
    """Return the target of classes `[rows]` from 0."""
    counts = np.bincount(labels)
    place = np.empty(len(counts), np.int64)
    place[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    places = np.minimum(place[labels], _MOST_CLASSES)
    return _Target(np.eye(places.max() + 1)[places], True, _halves(len(labels)))


def _halves(rows: int) -> np.ndarray:
    # A seed that made-up data do not have: with theirs, halves could be classes.
    return np.random.default_rng(0x5EED_0F_4A1F).random(rows) < 0.5


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks between 0 and 1 of `[rows]`; equal values get their mean rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((ends - (counts - 1) / 2) / len(values))[np.ravel(places)]


def _codes_of_numbers(values: np.ndarray) -> np.ndarray:
    """Return codes `[rows]` from 0 of floats: of each value if few, else of quantile bins."""
    missing = np.isnan(values)
    present = values[~missing]
    if not len(present):
        return np.zeros(len(values), np.int64)
    bins = max(2, min(100, len(present) // 20))
    edges = np.unique(present[:: max(1, len(present) // 2000)])
    distinct = np.unique(present) if len(edges) <= _FEW_VALUES else edges
    if len(distinct) <= min(_FEW_VALUES, bins * 2):
        codes = np.searchsorted(distinct, values)
    else:
        edges = np.unique(np.quantile(present, np.linspace(0, 1, bins + 1)[1:-1]))
        codes = np.searchsorted(edges, values, side="right")
    return np.where(missing, codes[~missing].max() + 1, codes)


class _Score(NamedTuple):
    """How well a column predicts the label: the explained share of the variance, held out.

    For numbers, it is the larger of the shares of the number and of its rank. For classes, `right`
    is the share of held-out rows with the right class, `usual` that of the most frequent class.
    """

    share: float
    right: float = 0.0
    usual: float = 0.0


def _score_column(codes: np.ndarray, target: _Target, rows: np.ndarray | None = None) -> _Score:
    """Return how well codes `[rows]` from 0 predict a label, in some rows or all."""
    columns, half = target.columns, target.half
    if rows is not None:
        codes, columns, half = codes[rows], columns[rows], half[rows]
    if not (half.any() and (~half).any()):
        return _Score(0.0)
    count = int(codes.max()) + 1
    errors, spread, right = np.zeros(columns.shape[1]), np.zeros(columns.shape[1]), 0
    for train in (half, ~half):
        mean = columns[train].mean(axis=0)
        weights = np.bincount(codes[train], minlength=count) + _SHRINKAGE
        sums = np.stack(
            [np.bincount(codes[train], column, count) for column in columns[train].T], axis=1
        )
        means = (sums + _SHRINKAGE * mean) / weights[:, None]
        judged, truth = codes[~train], columns[~train]
        errors += ((truth - means[judged]) ** 2).sum(axis=0)
        spread += ((truth - mean) ** 2).sum(axis=0)
        if target.classes:
            right += int((means.argmax(axis=1)[judged] == truth.argmax(axis=1)).sum())
    if target.classes:
        total = spread.sum()
        share = float(1 - errors.sum() / total) if total > 0 else 0.0
        return _Score(share, right / len(codes), float(columns.mean(axis=0).max()))
    shares = 1 - errors[spread > 0] / spread[spread > 0]
    return _Score(float(shares.max()) if len(shares) else 0.0)
