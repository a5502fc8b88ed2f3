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
from collections.abc import Iterable, Mapping
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
_LOST = 2  # group of values that are not finite


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
    rest = s - t
    np.subtract(a, rest, out=rest)
    np.subtract(b, t, out=t)
    rest += t
    return s, rest


def _fast_two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    s = a + b
    return s, b - (s - a)


def sum_rows(x: np.ndarray) -> DoubleDouble:
    """Sum over the last axis of float64 [columns, rows], by halves: log2(rows) numpy steps.

    The rounding errors of the sums are added in float64, which is as exact as adding all in twice
    the precision (Ogita, Rump and Oishi, "Accurate sum and dot product", 2005).
    """
    zero = np.zeros(len(x))
    odd = DoubleDouble(zero, zero)
    high, low = x, None
    while (rows := high.shape[1]) > 1:
        half = rows // 2
        if rows % 2:
            odd += DoubleDouble(high[:, -1], zero if low is None else low[:, -1])
        high, error = _two_sum(high[:, :half], high[:, half : 2 * half])
        if low is not None:
            error += low[:, :half]
            error += low[:, half : 2 * half]
        low = error
    for last in range(high.shape[1]):
        odd += DoubleDouble(high[:, last], zero if low is None else low[:, last])
    return odd


class FeatureState:
    """Statistics of the columns of one feature; arrays are [2, columns]: observed, imputed.

    Sums are those of the observed values.

    Memory: about 24 KiB per column (4 x 256 and 2,051 bins of 8 bytes), whatever the number of
    rows.
    """

    def __init__(self, columns: int):
        zero = np.zeros(columns)
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
        if batch.values.shape[0] == 0:
            return
        self.values += batch.values.shape[0]
        # A column's values side by side: NumPy is several times as fast along the last axis.
        x = np.array(batch.values.T, np.float64, order="C")
        group = self._groups(x, batch.imputed)
        places = {}
        observed = x
        if group is None:
            self._add_ranges(OBSERVED, slice(None), x)
        else:
            places = {g: np.flatnonzero(group == g) for g in (IMPUTED, _LOST)}
            mixed = group.any(axis=1)
            self._add_ranges(OBSERVED, ~mixed, x[~mixed])
            for g in (OBSERVED, IMPUTED):
                self._add_ranges(g, mixed, x[mixed], group[mixed] == g)
            observed = x.copy()
            observed[group != OBSERVED] = 0.0
        self.sum += sum_rows(observed)
        self.sum_of_squares += sum_rows(observed * observed)
        self._regrid()
        if len(places.get(_LOST, ())):  # they are counted and subtracted on any bin of the grid
            low = self.min.min(0)
            x = np.where(group == _LOST, np.where(np.isfinite(low), low, 0.0)[:, None], x)
        index = np.floor(x * np.ldexp(1.0, -self.exponent)[:, None])
        index -= self.first_bin[:, None]
        _add_counts(self.bins, index, places)
        index = np.floor(x * 2.0**-_CORE_EXPONENT)
        index += BINS // 2 + 1
        _add_counts(self.core, np.clip(index, 0, BINS + 1, out=index), places)
        _add_counts(self.by_float[None], value_grid.bin_of(x), places)

    def _groups(self, x: np.ndarray, imputed: np.ndarray | None) -> np.ndarray | None:
        """Return the group of each value, int8 [columns, rows]; None if all are observed.

        Count what is imputed, and what is not finite, which becomes 0 in `x`.
        """
        group = None
        if imputed is not None and imputed.any():
            group = np.array(imputed.T, np.int8, order="C")
            self.imputed += np.count_nonzero(group, axis=1)
        finite = np.isfinite(x)
        if not finite.all():
            group = np.zeros(x.shape, np.int8) if group is None else group
            group[~finite] = _LOST
            x[~finite] = 0.0
            self.non_finite += np.count_nonzero(~finite, axis=1)
        return group

    def _add_ranges(
        self,
        g: int,
        columns: np.ndarray | slice,
        x: np.ndarray,
        chosen: np.ndarray | None = None,
    ) -> None:
        """Add number, minimum and maximum of the chosen values of some columns to a group."""
        if chosen is None:
            self.count[g, columns] += x.shape[1]
            low, high = x.min(1), x.max(1)
        else:
            self.count[g, columns] += np.count_nonzero(chosen, axis=1)
            low, high = np.where(chosen, x, np.inf).min(1), np.where(chosen, x, -np.inf).max(1)
        self.min[g, columns] = np.minimum(self.min[g, columns], low)
        self.max[g, columns] = np.maximum(self.max[g, columns], high)

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


def _add_counts(counts: np.ndarray, index: np.ndarray, places: Mapping[int, np.ndarray]) -> None:
    """Add how often each index occurs in each group, per column, in place.

    Args:
        counts: int64 [groups, columns, bins]; values of other groups are not counted.
        index: [columns, rows], whole numbers from 0 to bins - 1; it is changed.
        places: Group to the places of its values in the flat index; the rest is observed.
    """
    columns, bins = counts.shape[1:]
    index += np.arange(0, columns * bins, bins, dtype=index.dtype)[:, None]
    flat = index.ravel().astype(np.int64, copy=False)
    counts[OBSERVED] += np.bincount(flat, minlength=columns * bins).reshape(columns, bins)
    for g, chosen in places.items():
        found = np.bincount(flat[chosen], minlength=columns * bins).reshape(columns, bins)
        counts[OBSERVED] -= found
        if g < len(counts):
            counts[g] += found


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
    return Fraction(float(total.high[i])) + Fraction(float(total.low[i]))


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
