"""Columns that give the label away: equal to it, another name for it, or in its order.

What such a column knows is seldom known when a prediction is wanted; a model that has it looks
perfect until it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

FEW_ROWS = 50
"""Rows below which chance may do the same."""

_ALIKE = 0.999
_SHOWN = 30


def find_leaks(columns: Mapping[str, Sequence[Any]], label: str) -> dict[str, str]:
    """Finds the columns that give the label away.

    Args:
        columns: name -> the values of each row, None where there is none.
        label: the column to predict.

    Returns:
        Name -> what it is to the label, in words.
    """
    targets = [_only(row) for row in columns[label]]
    found = {}
    for name, rows in columns.items():
        if name == label:
            continue
        pairs = [
            (value, target)
            for row, target in zip(rows, targets, strict=True)
            if target is not None and (value := _only(row)) is not None
        ]
        if len(pairs) >= max(FEW_ROWS, len(targets) // 2):
            reason = _leak(pairs)
            if reason is not None:
                found[name] = reason
    return found


def _only(row: Any) -> Any:
    """The value of a row; None for none, for several and for what Transform takes as missing."""
    if row is None or len(row) != 1:
        return None
    (value,) = row
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return None if value == "" else value


def _leak(pairs: Sequence[tuple[Any, Any]]) -> str | None:
    values, targets = zip(*pairs, strict=True)
    distinct, classes = len(set(values)), len(set(targets))
    if distinct < 2 or classes < 2:
        return None
    equal = sum(value == target for value, target in pairs) / len(pairs)
    if equal >= _ALIKE:
        return f"equals the label in {equal:.1%} of the rows"
    named = len(set(pairs))
    if named == distinct == classes and classes <= len(pairs) // 5:
        value, target = (" ".join(str(each).split())[:_SHOWN] for each in pairs[0])
        return f"maps one-to-one to the label ({value!r} = {target!r})"
    if _is_number(values) and _is_number(targets) and classes > FEW_ROWS:
        order = _rank_correlation(values, targets)
        if abs(order) >= _ALIKE:
            return f"is in the label's order (rank correlation {order:.4f})"
    if _is_number(values) and classes <= 10 and distinct > classes and _separates(pairs):
        return f"separates the label's {classes} values by ranges of its own"
    return None


def _is_number(values: Sequence[Any]) -> bool:
    return all(isinstance(value, (int, float)) for value in values)


def _rank_correlation(values: Sequence[Any], targets: Sequence[Any]) -> float:
    """Spearman's: the correlation of ranks, equal values at their mean rank."""
    return float(np.corrcoef(_ranks(values), _ranks(targets))[0, 1])


def _ranks(values: Sequence[Any]) -> np.ndarray:
    _, places, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[places]


def _separates(pairs: Sequence[tuple[Any, Any]]) -> bool:
    """Whether the values, in order, meet each of the targets in one run."""
    ordered = sorted(set(pairs), key=lambda pair: pair[0])
    if len({value for value, _ in ordered}) < len(ordered):
        return False  # a value with two targets
    runs = 1 + sum(one[1] != other[1] for one, other in pairwise(ordered))
    return runs == len({target for _, target in ordered})
