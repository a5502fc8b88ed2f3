"""How far the values of a split are from those of train, by ranks.

    V = max over intervals I of | share of the split's values in I - share of train's in I |

This is Kuiper's statistic: 0 where both are distributed alike, 1 where nothing overlaps. It asks
nothing of the moments (a Cauchy column has none), sees a scale as well as a location, and does not
change where both splits are rescaled by one increasing function. Over bins it is never above V of
the values themselves, so what chance reaches on a grid is at most what it reaches without one.

The mean is compared too: a few values far out move no rank. Its standard error is the larger one of
what train's spread and what both splits' own spreads give; one value far out is then one standard
error, however far, so that heavy tails raise no alarm.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict

from components.normalization_validator import value_grid
from components.normalization_validator.report import ColumnStatistics, Shift


class Counts(BaseModel):
    """Values that were not imputed, per bin; bins without a value are left out."""

    model_config = ConfigDict(frozen=True)

    bins: tuple[int, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, counts: np.ndarray) -> Counts:
        """Create it from int `[bins]`."""
        used = np.flatnonzero(counts)
        return cls(bins=tuple(used.tolist()), counts=tuple(counts[used].tolist()))


class ColumnCounts(BaseModel):
    """One column of one split on two grids.

    linear: bin i covers [ (first_bin + i) 2^exponent , (first_bin + i + 1) 2^exponent ).
    by_float: the bins of value_grid.
    """

    model_config = ConfigDict(frozen=True)

    exponent: int
    first_bin: int
    linear: Counts
    by_float: Counts


def shift(
    column: ColumnStatistics, counts: ColumnCounts, train: ColumnStatistics, reference: ColumnCounts
) -> Shift | None:
    """Return how far a column of a split is from the same column of train; None without a value."""
    if not column.count or not train.count:
        return None
    largest = max(_by_float(counts, reference), _linear(counts, reference), key=lambda m: m.moved)
    return Shift(
        **largest._asdict(),
        mean=mean_shift(column, train),
        mean_errors=_mean_errors(column, train),
    )


class _Moved(NamedTuple):
    moved: float
    low: float | None
    high: float | None
    share: float
    train_share: float


def _by_float(counts: ColumnCounts, reference: ColumnCounts) -> _Moved:
    mine, theirs = counts.by_float, reference.by_float
    return _largest(mine.bins, mine.counts, theirs.bins, theirs.counts, value_grid.edges())


def _linear(counts: ColumnCounts, reference: ColumnCounts) -> _Moved:
    """Return both histograms on the coarser one of their grids."""
    exponent = max(counts.exponent, reference.exponent)
    mine, theirs = _at(counts, exponent), _at(reference, exponent)
    used = np.union1d(mine, theirs)
    edges = np.ldexp(np.append(used, used[-1] + 1).astype(np.float64), exponent)
    return _largest(
        np.searchsorted(used, mine),
        counts.linear.counts,
        np.searchsorted(used, theirs),
        reference.linear.counts,
        edges,
    )


def _at(counts: ColumnCounts, exponent: int) -> np.ndarray:
    index = counts.first_bin + np.array(counts.linear.bins, np.int64)
    return index >> min(exponent - counts.exponent, 62)


def _largest(
    mine: Sequence[int] | np.ndarray,
    my_counts: Sequence[int],
    theirs: Sequence[int] | np.ndarray,
    their_counts: Sequence[int],
    edges: np.ndarray,
) -> _Moved:
    bins, count, train_count = len(edges) - 1, sum(my_counts), sum(their_counts)
    held, train_held = np.bincount(mine, my_counts, bins), np.bincount(theirs, their_counts, bins)
    # Whole numbers, so that equal shares differ by 0 and not by a rounding error.
    steps = held * train_count - train_held * count
    difference = np.concatenate([[0.0], np.cumsum(steps)])
    least, greatest = int(difference.argmin()), bins - int(difference[::-1].argmax())
    first, last = sorted((least, greatest))
    return _Moved(
        moved=float(difference.max() - difference.min()) / count / train_count,
        low=_finite(edges[first]),
        high=_finite(edges[last]),
        share=float(held[first:last].sum()) / count,
        train_share=float(train_held[first:last].sum()) / train_count,
    )


def _finite(edge: float) -> float | None:
    return float(edge) if math.isfinite(edge) else None


def mean_shift(column: ColumnStatistics, train: ColumnStatistics) -> float | None:
    """Return (mean - train mean) / train std.

    Where train is constant, its standard deviation is no unit: the split's own is taken, and where
    that is 0 too, equal means are no shift, and other means have no distance: None.
    """
    if column.mean is None or train.mean is None or column.std is None or train.std is None:
        return None
    difference = column.mean - train.mean
    if difference == 0.0:
        return 0.0
    unit = column.std if train.constant else train.std
    return difference / unit if unit > 0.0 else None


def _mean_errors(column: ColumnStatistics, train: ColumnStatistics) -> float | None:
    """Return |mean - train mean| in standard errors."""
    if column.mean is None or train.mean is None or column.std is None or train.std is None:
        return None
    alike = train.std * math.sqrt(1 / column.count + 1 / train.count)
    own = math.hypot(column.std / math.sqrt(column.count), train.std / math.sqrt(train.count))
    error = max(alike, own)
    difference = abs(column.mean - train.mean)
    if difference == 0.0:
        return 0.0
    return difference / error if error > 0.0 else None


def by_chance(false_alarm: float, count: int, train_count: int) -> float:
    """Return the V that two samples of one distribution exceed with this probability, at most.

    Kuiper's distribution with Stephens' correction for small samples (Stephens 1970, as in
    Numerical Recipes, section 14.3). Above 1 where so few values cannot show any shift.
    """
    root = math.sqrt(count * train_count / (count + train_count))
    return _quantile(false_alarm) / (root + 0.155 + 0.24 / root)


@functools.cache
def _quantile(probability: float) -> float:
    low, high = 0.5, 20.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if _exceeds(middle) > probability else (low, middle)
    return high


def _exceeds(x: float) -> float:
    terms = ((4 * (j * x) ** 2 - 1) * math.exp(-2 * (j * x) ** 2) for j in range(1, 101))
    return 2 * sum(terms)
