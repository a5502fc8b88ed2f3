"""Mergeable statistics of one feature's columns, in one pass and constant memory.

- counts, minimum, maximum and histogram: exact, whatever batches Beam makes of the rows.
- mean and standard deviation: of each batch in float64, merged as T. F. Chan, G. H. Golub and
  R. J. LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
- histogram: bins of width 1/16 from -16 to 16, where normalised values are; the others are counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np

from components.normalization_validator.columns import Batch, Column, Feature, FeatureSet, Values
from components.normalization_validator.report import (
    BIN_WIDTH,
    ColumnStatistics,
    Histogram,
    SplitStatistics,
)
from shared_core.feature_layout import ImageFeature

_BINS = 512

OBSERVED, FINITE = 0, 1  # of the ranges; imputed values are finite, but not observed


class _FeatureState:
    """Statistics of the columns of one feature; mean and deviations are of the observed values.

    Memory: about 8 KiB per column (2 x 514 bins of 8 bytes), whatever the number of rows.
    """

    def __init__(self, columns: int):
        self.values = 0
        self.absent = 0
        self.non_finite = np.zeros(columns, np.int64)
        self.imputed = np.zeros(columns, np.int64)
        self.count = np.zeros(columns, np.int64)
        self.mean = np.zeros(columns)
        self.squares = np.zeros(columns)  # sum of (x - mean)^2
        self.min = np.full([2, columns], np.inf)
        self.max = np.full([2, columns], -np.inf)
        # Observed and imputed values: below the bins, in each of them, above them.
        self.bins = np.zeros([2, columns, _BINS + 2], np.int64)

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
        for group, chosen in ((OBSERVED, observed), (FINITE, finite)):
            low, high = np.where(chosen, x, np.inf).min(1), np.where(chosen, x, -np.inf).max(1)
            self.min[group] = np.minimum(self.min[group], low)
            self.max[group] = np.maximum(self.max[group], high)
        x = np.where(finite, x, 0.0)
        count = np.count_nonzero(observed, axis=1)
        mean = np.where(observed, x, 0.0).sum(axis=1) / np.maximum(count, 1)
        apart = np.where(observed, x - mean[:, None], 0.0)
        self._add_moments(count, mean, (apart * apart).sum(axis=1))
        group = 2 - finite - observed.astype(np.int64)  # observed, imputed, not finite
        columns, bins = len(x), _BINS + 2
        place = (group * columns + np.arange(columns)[:, None]) * bins + _bin_of(x)
        counts = np.bincount(place.ravel(), minlength=3 * columns * bins)
        self.bins += counts.reshape(3, columns, bins)[:2]

    def merge(self, other: _FeatureState) -> None:
        """Add what another state has seen."""
        self.values += other.values
        self.absent += other.absent
        self.non_finite += other.non_finite
        self.imputed += other.imputed
        self._add_moments(other.count, other.mean, other.squares)
        self.min = np.minimum(self.min, other.min)
        self.max = np.maximum(self.max, other.max)
        self.bins += other.bins

    def _add_moments(self, count: np.ndarray, mean: np.ndarray, squares: np.ndarray) -> None:
        total, apart = self.count + count, mean - self.mean
        share = count / np.maximum(total, 1)
        self.squares += squares + apart * apart * self.count * share
        self.mean += apart * share
        self.count = total


class _PixelState:
    """The number of pixels of each byte, of which all statistics of normalised pixels follow."""

    def __init__(self, image: ImageFeature):
        self._image = image
        self.absent = 0
        self.counts = np.zeros([256, image.channels], np.int64)

    def add(self, batch: Values) -> None:
        """Add the counts of one batch."""
        self.absent += batch.absent
        self.counts += batch.values

    def merge(self, other: _PixelState) -> None:
        """Add what another state has seen."""
        self.absent += other.absent
        self.counts += other.counts

    def normalised(self) -> _FeatureState:
        """Return the state of the channels as the model's first layer normalises them."""
        deviation = np.sqrt(self._image.variance)
        scale = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
        x = (np.arange(256.0)[:, None] - self._image.mean) * scale
        state = _FeatureState(self._image.channels)
        state.absent, state.count = self.absent, self.counts.sum(axis=0)
        state.values = int(state.count[0])
        state.mean = (x * self.counts).sum(axis=0) / np.maximum(state.count, 1)
        state.squares = ((x - state.mean) ** 2 * self.counts).sum(axis=0)
        occurs = self.counts > 0
        state.min[:], state.max[:] = (
            np.where(occurs, x, np.inf).min(axis=0),
            np.where(occurs, x, -np.inf).max(axis=0),
        )
        channels = np.broadcast_to(np.arange(x.shape[1]), x.shape)
        np.add.at(state.bins[OBSERVED], (channels, _bin_of(x)), self.counts)
        return state


def _bin_of(x: np.ndarray) -> np.ndarray:
    """Return the place of each value among the bins, int64."""
    return np.clip(np.floor(x / BIN_WIDTH) + (_BINS // 2 + 1), 0, _BINS + 1).astype(np.int64)


class _SplitState(NamedTuple):
    """Statistics of one split: rows (an array of one, to count in place), a state per feature."""

    rows: np.ndarray
    features: tuple[Any, ...]  # _FeatureState; of an image, _PixelState


class ComputeStatistics(beam.CombineFn):
    """Batches of one split -> SplitStatistics."""

    def __init__(self, feature_set: FeatureSet, split: str):
        self._features = feature_set.features
        self._split = split

    def create_accumulator(self) -> _SplitState:
        """Return a state without rows."""
        features = tuple(
            _PixelState(each.image) if each.image else _FeatureState(len(each.columns))
            for each in self._features
        )
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
        states = [
            each.normalised() if isinstance(each, _PixelState) else each
            for each in accumulator.features
        ]
        columns = [
            _column(feature, column, state, i, self._split)
            for feature, state in zip(self._features, states, strict=True)
            for i, column in enumerate(feature.columns)
        ]
        rows = int(accumulator.rows[0])
        return SplitStatistics(split=self._split, rows=rows, columns=tuple(columns))


def _column(
    feature: Feature, column: Column, state: _FeatureState, i: int, split: str
) -> ColumnStatistics:
    count = int(state.count[i])
    any_finite = bool(state.min[FINITE, i] <= state.max[FINITE, i])
    constant = bool(count and state.min[OBSERVED, i] == state.max[OBSERVED, i])
    mean = std = None
    if constant:  # a mean that is rounded would leave a deviation
        mean, std = float(state.min[OBSERVED, i]), 0.0
    elif count:
        mean, std = float(state.mean[i]), math.sqrt(state.squares[i] / count)
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
        constant=constant,
        histogram=_histogram(state.bins[:, i]) if any_finite else None,
    )


def _histogram(bins: np.ndarray) -> Histogram:
    below, inside, above = bins[:, 0].sum(), bins[:, 1:-1], bins[:, -1].sum()
    used = np.flatnonzero(inside.sum(0))
    first, last = (int(used[0]), int(used[-1])) if used.size else (0, -1)
    observed, imputed = inside[:, first : last + 1].tolist()
    return Histogram(
        first_bin=first - _BINS // 2,
        observed=tuple(observed),
        imputed=tuple(imputed),
        below=int(below),
        above=int(above),
    )
