"""Mergeable statistics of one feature's columns, in one pass and constant memory.

Every result depends on the values alone, not on how Beam cut them into batches or in which order it
merged them, so that two runs write the same report:

- counts, minimum, maximum: exact.
- mean and standard deviation: from exact sums of x and x^2 (`add_exactly`); each is rounded once.
- histogram: 256 bins of width 2^e. e is the least at which the whole range fits, and a finer grid
  turns into a coarser one by adding neighbouring bins: counts are those that one pass over the
  final grid would give. One value far out makes that grid coarse, so a second one always covers
  [-8, 8), where normalised values are; it is reported where it is finer and holds 99 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

import apache_beam as beam
import numpy as np

from components.normalization_validator.columns import Batch, Column, Feature, FeatureSet, Values
from components.normalization_validator.report import ColumnStatistics, Histogram, SplitStatistics

_BINS = 256
_BIN_BITS = 8  # BINS = 2 ** _BIN_BITS
_LEAST_EXPONENT = -100
_INDEX_BITS = 40  # bin indices stay below 2^41, exact as int64 and as float64
_CORE_EXPONENT = -4  # the second grid: [-8, 8) in bins of 1/16, and one bin for each side
_CORE_SHARE = 0.99
_CHUNK_BITS = 36

OBSERVED, FINITE = 0, 1  # of the ranges; imputed values are finite, but not observed

#: Sums of columns: exponent e -> int objects [columns], in units of 2^e. They have as many digits
#: as they need, so nothing overflows, and the order of additions does not matter.
_Sums = dict[int, np.ndarray]


def _add_exactly(sums: _Sums, x: np.ndarray) -> None:
    """Add float64 [columns, rows], finite, to the sums of columns, without rounding; `x` becomes 0.

    The 36 highest bits of the values are whole numbers of one unit, whose sum over up to 2^17 rows
    is exact in float64; the remainders are added likewise, in smaller units.
    """
    top = math.frexp(max(x.max(initial=0.0), -x.min(initial=0.0)))[1]
    exponent = top // 12 * 12 + 12  # multiples of 12: few units, whatever the batches hold
    while x.any():
        exponent -= _CHUNK_BITS
        whole = x * 2.0**-exponent
        np.rint(whole, out=whole)
        sums[exponent] = sums.get(exponent, 0) + whole.sum(axis=1).astype(np.int64).astype(object)
        whole *= 2.0**exponent
        x -= whole


def _exact(sums: _Sums, i: int) -> Fraction:
    return sum((Fraction(2) ** e * each[i] for e, each in sums.items()), Fraction())


class _FeatureState:
    """Statistics of the columns of one feature. Sums are those of the observed values.

    Memory: about 8 KiB per column (2 x 256 and 2 x 258 bins of 8 bytes), whatever the number of
    rows.
    """

    def __init__(self, columns: int):
        self.values = 0
        self.absent = 0
        self.non_finite = np.zeros(columns, np.int64)
        self.imputed = np.zeros(columns, np.int64)
        self.count = np.zeros(columns, np.int64)
        self.sum: _Sums = {}
        self.sum_of_squares: _Sums = {}
        self.min = np.full([2, columns], np.inf)
        self.max = np.full([2, columns], -np.inf)
        self.exponent, self.first_bin = _grid(self.min[FINITE], self.max[FINITE])
        self.bins = np.zeros([2, columns, _BINS], np.int64)  # observed, imputed
        self.core = np.zeros([2, columns, _BINS + 2], np.int64)

    def add(self, batch: Values) -> None:
        """Add one batch of [rows, columns]."""
        self.absent += batch.absent
        if batch.values.shape[0] == 0:
            return
        # A column's values side by side: NumPy is several times as fast along the last axis.
        x = np.array(batch.values.T, np.float64, order="C")
        finite = observed = np.isfinite(x)
        if batch.imputed is not None:
            imputed = np.array(batch.imputed.T, order="C")
            self.imputed += np.count_nonzero(imputed, axis=1)
            observed = finite & ~imputed
        self.values += x.shape[1]
        self.non_finite += np.count_nonzero(~finite, axis=1)
        self.count += np.count_nonzero(observed, axis=1)
        for group, chosen in ((OBSERVED, observed), (FINITE, finite)):
            low, high = np.where(chosen, x, np.inf).min(1), np.where(chosen, x, -np.inf).max(1)
            self.min[group] = np.minimum(self.min[group], low)
            self.max[group] = np.maximum(self.max[group], high)
        x = np.where(finite, x, 0.0)
        seen = np.where(observed, x, 0.0)
        _add_exactly(self.sum_of_squares, seen * seen)
        _add_exactly(self.sum, seen)
        self._regrid()
        group = 2 - finite - observed.astype(np.int64)  # observed, imputed, not finite
        index = np.floor(x * np.ldexp(1.0, -self.exponent)[:, None]) - self.first_bin[:, None]
        self.bins += _count(index, group, _BINS)
        index = np.floor(x * 2.0**-_CORE_EXPONENT) + (_BINS // 2 + 1)
        self.core += _count(index, group, _BINS + 2)

    def merge(self, other: _FeatureState) -> None:
        """Add what another state has seen."""
        self.values += other.values
        self.absent += other.absent
        self.non_finite += other.non_finite
        self.imputed += other.imputed
        self.count += other.count
        for mine, theirs in ((self.sum, other.sum), (self.sum_of_squares, other.sum_of_squares)):
            for exponent, each in theirs.items():
                mine[exponent] = mine.get(exponent, 0) + each
        self.min = np.minimum(self.min, other.min)
        self.max = np.maximum(self.max, other.max)
        self._regrid()
        self.bins += _coarsen(other, self.exponent, self.first_bin)
        self.core += other.core

    def _regrid(self) -> None:
        exponent, first_bin = _grid(self.min[FINITE], self.max[FINITE])
        if np.any(exponent != self.exponent) or np.any(first_bin != self.first_bin):
            self.bins = _coarsen(self, exponent, first_bin)
            self.exponent, self.first_bin = exponent, first_bin


def _count(index: np.ndarray, group: np.ndarray, bins: int) -> np.ndarray:
    """Return how often each index [columns, rows] occurs: int64 [2, columns, bins].

    Values of group 2 are not counted, whatever their index is.
    """
    columns = len(index)
    place = (group * columns + np.arange(columns)[:, None]) * bins
    place += np.clip(index, 0, bins - 1).astype(np.int64)
    counts = np.bincount(place.ravel(), minlength=3 * columns * bins)
    return counts.reshape(3, columns, bins)[:2]


def _grid(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the finest grid of 256 bins over [low, high], per column: exponent and first bin.

    A wider range never has a finer grid, so grids of parts can be brought to the grid of the whole.
    """
    seen = low <= high
    low, high = np.where(seen, low, 0.0), np.where(seen, high, 0.0)
    _, magnitude = np.frexp(np.maximum(np.abs(low), np.abs(high)))
    _, span = np.frexp(high - low)
    span = np.where(high > low, span, _LEAST_EXPONENT)
    exponent = np.maximum(magnitude - _INDEX_BITS, _LEAST_EXPONENT)
    # high - low < 2^span: at 2^(span - 8 - 1) at least 256 bins are needed, at 2^(span - 8 + 1)
    # at most 129; the first exponent that fits is one of those between.
    exponent = np.maximum(exponent, span - _BIN_BITS - 1)
    for _ in range(3):
        needed = np.floor(np.ldexp(high, -exponent)) - np.floor(np.ldexp(low, -exponent))
        exponent = np.where(needed >= _BINS, exponent + 1, exponent)
    exponent = np.where(seen, exponent, _LEAST_EXPONENT)
    return exponent, np.floor(np.ldexp(low, -exponent)).astype(np.int64)


def _coarsen(state: _FeatureState, exponent: np.ndarray, first_bin: np.ndarray) -> np.ndarray:
    """Return the bins of `state` on another grid that covers the range of `state`."""
    shift = np.clip(exponent - state.exponent, 0, 62)
    index = (state.first_bin[:, None] + np.arange(_BINS)) >> shift[:, None]
    index = np.clip(index - first_bin[:, None], 0, _BINS - 1)  # bins out of the range are empty
    bins = np.zeros_like(state.bins)
    columns = np.arange(index.shape[0])[:, None]
    for group in (0, 1):
        np.add.at(bins[group], (columns, index), state.bins[group])
    return bins


class _SplitState(NamedTuple):
    """Statistics of one split: rows (an array of one, to count in place), a state per feature."""

    rows: np.ndarray
    features: tuple[_FeatureState, ...]


class ComputeStatistics(beam.CombineFn):
    """Batches of one split -> SplitStatistics."""

    def __init__(self, feature_set: FeatureSet, split: str):
        self._features = feature_set.features
        self._split = split

    def create_accumulator(self) -> _SplitState:
        """Return a state without rows."""
        features = tuple(_FeatureState(len(feature.columns)) for feature in self._features)
        return _SplitState(np.zeros(1, np.int64), features)

    def add_input(self, mutable_accumulator: _SplitState, element: Batch) -> _SplitState:
        """Add one batch, in place."""
        mutable_accumulator.rows[0] += element.rows
        for state, values in zip(mutable_accumulator.features, element.features, strict=True):
            state.add(values)
        return mutable_accumulator

    def merge_accumulators(self, accumulators: Iterable[_SplitState]) -> _SplitState:
        """Merge any number of states into a new one."""
        merged = self.create_accumulator()
        for accumulator in accumulators:
            merged.rows[0] += accumulator.rows[0]
            for state, other in zip(merged.features, accumulator.features, strict=True):
                state.merge(other)
        return merged

    def extract_output(self, accumulator: _SplitState) -> SplitStatistics:
        """Return the statistics of every column."""
        columns = [
            _column(feature, column, state, i, self._split)
            for feature, state in zip(self._features, accumulator.features, strict=True)
            for i, column in enumerate(feature.columns)
        ]
        rows = int(accumulator.rows[0])
        return SplitStatistics(split=self._split, rows=rows, columns=tuple(columns))


def _column(
    feature: Feature, column: Column, state: _FeatureState, i: int, split: str
) -> ColumnStatistics:
    count = int(state.count[i])
    any_finite = bool(state.min[FINITE, i] <= state.max[FINITE, i])
    mean = std = None
    if count:
        exact_mean = _exact(state.sum, i) / count
        variance = _exact(state.sum_of_squares, i) / count - exact_mean * exact_mean
        mean, std = float(exact_mean), math.sqrt(max(float(variance), 0.0))
    known = {k: v for k, v in column._asdict().items() if k in ColumnStatistics.model_fields}
    return ColumnStatistics(
        **known,
        feature=feature.name,
        split=split,
        values=state.values,
        absent=state.absent,
        non_finite=int(state.non_finite[i]),
        imputed=int(state.imputed[i]),
        count=count,
        mean=mean,
        std=std,
        min=float(state.min[FINITE, i]) if any_finite else None,
        max=float(state.max[FINITE, i]) if any_finite else None,
        constant=bool(count and state.min[OBSERVED, i] == state.max[OBSERVED, i]),
        histogram=_histogram(state, i) if any_finite else None,
    )


def _histogram(state: _FeatureState, i: int) -> Histogram:
    exponent, first_bin = int(state.exponent[i]), int(state.first_bin[i])
    bins, below, above = state.bins[:, i], 0, 0
    core = state.core[:, i]
    if exponent > _CORE_EXPONENT and core[:, 1:-1].sum() >= _CORE_SHARE * core.sum():
        exponent, first_bin = _CORE_EXPONENT, -_BINS // 2
        bins, below, above = core[:, 1:-1], int(core[:, 0].sum()), int(core[:, -1].sum())
    used = np.flatnonzero(bins.sum(0))
    first, last = int(used[0]), int(used[-1])
    observed, imputed = bins[:, first : last + 1].tolist()
    return Histogram(
        exponent=exponent,
        first_bin=first_bin + first,
        observed=tuple(observed),
        imputed=tuple(imputed),
        below=below,
        above=above,
    )
