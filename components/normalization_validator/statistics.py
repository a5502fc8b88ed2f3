"""Mergeable statistics of one feature's columns, in one pass and constant memory.

Every result depends on the values alone, not on how Beam cut them into batches or in which order it
merged them, so that two runs write the same report:

- counts, minimum, maximum: exact.
- mean and standard deviation: from sums of x and x^2 kept as double-doubles (106 bits). A float32
  has 24 bits and its square 48, so these sums are exact for values that span less than 2^29, and
  elsewhere right far beyond the 53 bits of the result.
- histogram: 256 bins of width 2^e. e is the least at which the whole range fits, and a finer grid
  turns into a coarser one by adding neighbouring bins: counts are those that one pass over the
  final grid would give. One value far out makes that grid coarse, so a second one always covers
  [-8, 8), where normalised values are; it is reported where it is finer and holds 99 %.
- where values lie (value_grid.py): on bins that are the same for all data, to compare splits by.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

import apache_beam as beam
import numpy as np
from pydantic import BaseModel, ConfigDict

from components.normalization_validator import value_grid
from components.normalization_validator.columns import (
    Batch,
    Column,
    Feature,
    FeatureSet,
    Values,
)
from components.normalization_validator.report import ColumnStatistics, Histogram, SplitStatistics
from components.normalization_validator.shift import ColumnCounts, Counts, shift

BINS = 256
_BIN_BITS = 8  # BINS = 2 ** _BIN_BITS
_LEAST_EXPONENT = -100
_INDEX_BITS = 40  # bin indices stay below 2^41, exact as int64 and as float64
_CORE_EXPONENT = -4  # the second grid: [-8, 8) in bins of 1/16, and one bin for each side
_CORE_SHARE = 0.99

OBSERVED, IMPUTED = 0, 1  # first axis of the state


class DoubleDouble(NamedTuple):
    """high + low, where low is the rounding error of high. Knuth's and Dekker's error-free sums."""

    high: np.ndarray
    low: np.ndarray

    def __add__(self, other: DoubleDouble) -> DoubleDouble:  # pyright: ignore
        """Return the sum, to 106 bits."""
        high, error = _two_sum(self.high, other.high)
        low, error_of_low = _two_sum(self.low, other.low)
        high, error = _fast_two_sum(high, error + low)
        return DoubleDouble(*_fast_two_sum(high, error + error_of_low))


def _two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _fast_two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    s = a + b
    return s, b - (s - a)


def sum_rows(x: np.ndarray) -> DoubleDouble:
    """Sum over the first axis of float64 [rows, columns], by halves: log2(rows) numpy steps."""
    if x.shape[0] == 0:
        zero = np.zeros(x.shape[1:])
        return DoubleDouble(zero, zero)
    half, odd_rows = divmod(x.shape[0], 2)
    if odd_rows:
        total = DoubleDouble(x, np.zeros_like(x))
    else:  # the largest step, which has no low parts to add
        total = DoubleDouble(*_two_sum(x[:half], x[half:]))
    while (rows := total.high.shape[0]) > 1:
        half = rows // 2
        odd = DoubleDouble(total.high[2 * half :], total.low[2 * half :])
        total = DoubleDouble(total.high[:half], total.low[:half]) + DoubleDouble(
            total.high[half : 2 * half], total.low[half : 2 * half]
        )
        if rows % 2:
            first = DoubleDouble(total.high[:1], total.low[:1]) + odd
            total.high[:1], total.low[:1] = first.high, first.low
    return DoubleDouble(total.high[0], total.low[0])


class FeatureState:
    """Statistics of the columns of one feature; arrays are [2, columns]: observed, imputed.

    Memory: about 24 KiB per column (4 x 256 and 2,051 bins of 8 bytes), whatever the number of
    rows.
    """

    def __init__(self, columns: int):
        zero = np.zeros([2, columns])
        self.values = 0
        self.absent = 0
        self.non_finite = np.zeros(columns, np.int64)
        self.imputed = np.zeros(columns, np.int64)
        self.count = np.zeros([2, columns], np.int64)
        self.sum = DoubleDouble(zero, zero)
        self.sum_of_squares = DoubleDouble(zero, zero)
        self.min = np.full([2, columns], np.inf)
        self.max = np.full([2, columns], -np.inf)
        self.exponent, self.first_bin = _grid(self.min.min(0), self.max.max(0))
        self.bins = np.zeros([2, columns, BINS], np.int64)
        self.core = np.zeros([2, columns, BINS + 2], np.int64)
        self.by_float = np.zeros([columns, value_grid.BINS], np.int64)  # observed

    def add(self, batch: Values) -> None:
        """Add one batch of [rows, columns]."""
        self.absent += batch.absent
        x = batch.values
        if x.shape[0] == 0:
            return
        self.values += x.shape[0]
        finite = np.isfinite(x)
        self.non_finite += np.count_nonzero(~finite, axis=0)
        if batch.imputed is None:
            self._add_values(x, [finite])
        else:
            self.imputed += np.count_nonzero(batch.imputed, axis=0)
            self._add_values(x, [finite & ~batch.imputed, finite & batch.imputed])

    def _add_values(self, x: np.ndarray, groups: list[np.ndarray]) -> None:
        for g, chosen in enumerate(groups):
            self.count[g] += np.count_nonzero(chosen, axis=0)
            self.min[g] = np.minimum(self.min[g], np.where(chosen, x, np.inf).min(0))
            self.max[g] = np.maximum(self.max[g], np.where(chosen, x, -np.inf).max(0))
        kept = [np.where(chosen, x, 0.0) for chosen in groups]
        none = np.zeros([2 - len(groups), x.shape[1]])
        self.sum += _stack([sum_rows(k) for k in kept], none)
        self.sum_of_squares += _stack([sum_rows(k * k) for k in kept], none)
        self._regrid()
        for g, chosen in enumerate(groups):
            index = np.floor(np.ldexp(kept[g], -self.exponent)) - self.first_bin
            self.bins[g] += _count(index, chosen, BINS)
            index = np.floor(np.ldexp(kept[g], -_CORE_EXPONENT)) + (BINS // 2 + 1)
            self.core[g] += _count(np.clip(index, 0, BINS + 1), chosen, BINS + 2)
        index = value_grid.bin_of(kept[OBSERVED])
        self.by_float += _count(index, groups[OBSERVED], value_grid.BINS)

    def merge(self, other: FeatureState) -> None:
        """Add what another state has seen."""
        self.values += other.values
        self.absent += other.absent
        self.non_finite += other.non_finite
        self.imputed += other.imputed
        self.count += other.count
        self.sum += other.sum
        self.sum_of_squares += other.sum_of_squares
        self.min = np.minimum(self.min, other.min)
        self.max = np.maximum(self.max, other.max)
        self._regrid()
        self.bins += _coarsen(other, self.exponent, self.first_bin)
        self.core += other.core
        self.by_float += other.by_float

    def _regrid(self) -> None:
        exponent, first_bin = _grid(self.min.min(0), self.max.max(0))
        if np.any(exponent != self.exponent) or np.any(first_bin != self.first_bin):
            self.bins = _coarsen(self, exponent, first_bin)
            self.exponent, self.first_bin = exponent, first_bin


def _count(index: np.ndarray, chosen: np.ndarray, bins: int) -> np.ndarray:
    """Count how often each index occurs among the chosen ones, per column: [columns, bins]."""
    columns = index.shape[1]
    flat = (index + np.arange(columns) * bins)[chosen].astype(np.int64)
    return np.bincount(flat, minlength=columns * bins).reshape(columns, bins)


def _stack(sums: list[DoubleDouble], none: np.ndarray) -> DoubleDouble:
    return DoubleDouble(
        np.concatenate([np.stack([s.high for s in sums]), none]),
        np.concatenate([np.stack([s.low for s in sums]), none]),
    )


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
        exponent = np.where(needed >= BINS, exponent + 1, exponent)
    exponent = np.where(seen, exponent, _LEAST_EXPONENT)
    return exponent, np.floor(np.ldexp(low, -exponent)).astype(np.int64)


def _coarsen(state: FeatureState, exponent: np.ndarray, first_bin: np.ndarray) -> np.ndarray:
    """Return the bins of `state` on another grid that covers the range of `state`."""
    shift = np.clip(exponent - state.exponent, 0, 62)
    index = (state.first_bin[:, None] + np.arange(BINS)) >> shift[:, None]
    index = np.clip(index - first_bin[:, None], 0, BINS - 1)  # bins out of the range are empty
    bins = np.zeros_like(state.bins)
    columns = np.arange(index.shape[0])[:, None]
    for g in (OBSERVED, IMPUTED):
        np.add.at(bins[g], (columns, index), state.bins[g])
    return bins


class SplitState(NamedTuple):
    """Statistics of one split: rows (an array of one, to count in place), a state per feature."""

    rows: np.ndarray
    features: tuple[FeatureState, ...]


class Measured(BaseModel):
    """What one pass over a split finds; `counts` are of the same columns, in the same order."""

    model_config = ConfigDict(frozen=True)

    statistics: SplitStatistics
    counts: tuple[ColumnCounts, ...]


class ComputeStatistics(beam.CombineFn):
    """Batches of one split -> Measured."""

    def __init__(self, feature_set: FeatureSet, split: str):
        self._features = feature_set.features
        self._split = split

    def create_accumulator(self) -> SplitState:
        """Return a state without rows."""
        features = tuple(FeatureState(len(feature.columns)) for feature in self._features)
        return SplitState(np.zeros(1, np.int64), features)

    def add_input(self, mutable_accumulator: SplitState, element: Batch) -> SplitState:
        """Add one batch, in place."""
        mutable_accumulator.rows[0] += element.rows
        for state, values in zip(mutable_accumulator.features, element.features, strict=True):
            state.add(values)
        return mutable_accumulator

    def merge_accumulators(self, accumulators: Iterable[SplitState]) -> SplitState:
        """Merge any number of states into a new one."""
        merged = self.create_accumulator()
        for accumulator in accumulators:
            merged.rows[0] += accumulator.rows[0]
            for state, other in zip(merged.features, accumulator.features, strict=True):
                state.merge(other)
        return merged

    def extract_output(self, accumulator: SplitState) -> Measured:
        """Return the statistics of every column, and the counts to compare splits by."""
        columns, counts = [], []
        for feature, state in zip(self._features, accumulator.features, strict=True):
            for i, column in enumerate(feature.columns):
                columns.append(_column(feature, column, state, i, self._split))
                counts.append(_counts(state, i))
        statistics = SplitStatistics(
            split=self._split, rows=int(accumulator.rows[0]), columns=tuple(columns)
        )
        return Measured(statistics=statistics, counts=tuple(counts))


def _counts(state: FeatureState, i: int) -> ColumnCounts:
    return ColumnCounts(
        exponent=int(state.exponent[i]),
        first_bin=int(state.first_bin[i]),
        linear=Counts.of(state.bins[OBSERVED, i]),
        by_float=Counts.of(state.by_float[i]),
    )


def with_shifts(split: Measured, train: Measured) -> SplitStatistics:
    """Return the statistics of a split, each column with its shift against train."""
    if split is train:
        return split.statistics
    columns = []
    for column, counts, other, other_counts in zip(
        split.statistics.columns, split.counts, train.statistics.columns, train.counts, strict=True
    ):
        if not column.is_id:
            column = column.model_copy(update={"shift": shift(column, counts, other, other_counts)})
        columns.append(column)
    return split.statistics.model_copy(update={"columns": tuple(columns)})


def _column(
    feature: Feature, column: Column, state: FeatureState, i: int, split: str
) -> ColumnStatistics:
    count = int(state.count[OBSERVED, i])
    finite = count + int(state.count[IMPUTED, i])
    mean = std = None
    if count:
        # Rational arithmetic: nothing cancels, and the result is rounded once.
        exact_mean = _exact(state.sum, i) / count
        variance = _exact(state.sum_of_squares, i) / count - exact_mean * exact_mean
        mean, std = float(exact_mean), math.sqrt(max(float(variance), 0.0))
    return ColumnStatistics(
        name=column.name,
        kind=column.kind,
        feature=feature.name,
        position=column.position,
        vocabulary_size=column.vocabulary_size,
        split=split,
        values=state.values,
        absent=state.absent,
        non_finite=int(state.non_finite[i]),
        imputed=int(state.imputed[i]),
        count=count,
        mean=mean,
        std=std,
        min=float(state.min[:, i].min()) if finite else None,
        max=float(state.max[:, i].max()) if finite else None,
        constant=bool(count and state.min[OBSERVED, i] == state.max[OBSERVED, i]),
        histogram=_histogram(state, i) if finite else None,
        validation_rule=column.validation_rule,
        bounds=column.bounds,
        is_aspect=column.is_aspect,
    )


def _exact(total: DoubleDouble, i: int) -> Fraction:
    return Fraction(float(total.high[OBSERVED, i])) + Fraction(float(total.low[OBSERVED, i]))


def _histogram(state: FeatureState, i: int) -> Histogram:
    exponent, first_bin = int(state.exponent[i]), int(state.first_bin[i])
    bins, below, above = state.bins[:, i], 0, 0
    core = state.core[:, i]
    if exponent > _CORE_EXPONENT and core[:, 1:-1].sum() >= _CORE_SHARE * core.sum():
        exponent, first_bin = _CORE_EXPONENT, -BINS // 2
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
