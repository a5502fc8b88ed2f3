"""Measure how well one column predicts the label by the mean label per value or bin.

The score is the explained share of the label's variance. Each half of the rows is predicted by the
means of the other half:

    1 - Σ (y - mean of the other half's rows with the same code)² / Σ (y - mean of the other half)²

For classes, y is a 0/1 column per class, so that the score is the Brier skill score. A missing
value has a separate code.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_MOST_BINS = 100
_ROWS_PER_BIN = 20
_FEW_VALUES = 200  # up to this many distinct numbers, each may have a code
_SHRINKAGE = 0.1  # rows with the overall mean that are added to each code


class Target(NamedTuple):
    """A label as columns to predict.

    Attributes:
        columns: `[rows, k]`; for numbers, the number and its rank; for classes, 0/1 columns.
        classes: Whether the label is classes.
        half: `[rows]` bool, the half of each row.
    """

    columns: np.ndarray
    classes: bool
    half: np.ndarray


def target_of_numbers(labels: np.ndarray) -> Target:
    """Return the target of finite numbers `[rows]`.

    Ranks limit the effect of a heavy tail, where a few large labels determine the variance.
    """
    scaled = labels - labels.mean()
    largest = np.abs(scaled).max()
    return Target(
        np.stack([scaled / largest if largest > 0 else scaled, ranks(labels)], axis=1),
        False,
        _halves(len(labels)),
    )


def target_of_classes(labels: np.ndarray, most: int = 50) -> Target:
    """Return the target of classes `[rows]` from 0; all but the `most` most frequent are merged."""
    counts = np.bincount(labels)
    place = np.empty(len(counts), np.int64)
    place[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    places = np.minimum(place[labels], most)
    return Target(np.eye(places.max() + 1)[places], True, _halves(len(labels)))


def _halves(rows: int) -> np.ndarray:
    # A seed that made-up data do not have: with theirs, halves could be classes.
    return np.random.default_rng(0x5EED_0F_4A1F).random(rows) < 0.5


def ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks between 0 and 1 of `[rows]`; equal values get their mean rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((ends - (counts - 1) / 2) / len(values))[np.ravel(places)]


def codes_of_numbers(values: np.ndarray) -> np.ndarray:
    """Return codes `[rows]` from 0: of each value if there are few, else of quantile bins.

    Args:
        values: `[rows]`, float; NaN is missing and gets a separate code.
    """
    missing = np.isnan(values)
    present = values[~missing]
    if not len(present):
        return np.zeros(len(values), np.int64)
    bins = max(2, min(_MOST_BINS, len(present) // _ROWS_PER_BIN))
    edges = np.unique(present[:: max(1, len(present) // 2000)])
    distinct = np.unique(present) if len(edges) <= _FEW_VALUES else edges
    if len(distinct) <= min(_FEW_VALUES, bins * 2):
        codes = np.searchsorted(distinct, values)
    else:
        edges = np.unique(np.quantile(present, np.linspace(0, 1, bins + 1)[1:-1]))
        codes = np.searchsorted(edges, values, side="right")
    return np.where(missing, codes[~missing].max() + 1, codes)


class ColumnScore(NamedTuple):
    """How well a column predicts the label.

    Attributes:
        share: Explained share of the variance on held-out rows, at most 1. For numbers, the larger
            of the shares of the number and of its rank.
        right: For classes, the share of held-out rows with the right class (accuracy); else 0.
        usual: For classes, the share of the most frequent class; else 0.
    """

    share: float
    right: float = 0.0
    usual: float = 0.0


def score_column(codes: np.ndarray, target: Target, rows: np.ndarray | None = None) -> ColumnScore:
    """Return how well codes predict a label.

    Args:
        codes: `[rows]` integers from 0.
        target: Target of the same rows.
        rows: `[rows]` bool or indices of the rows to use; None: all.
    """
    columns, half = target.columns, target.half
    if rows is not None:
        codes, columns, half = codes[rows], columns[rows], half[rows]
    if not (half.any() and (~half).any()):
        return ColumnScore(0.0)
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
        return ColumnScore(share, right / len(codes), float(columns.mean(axis=0).max()))
    shares = 1 - errors[spread > 0] / spread[spread > 0]
    return ColumnScore(float(shares.max()) if len(shares) else 0.0)
