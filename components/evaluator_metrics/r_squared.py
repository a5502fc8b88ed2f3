"""R², the coefficient of determination, as a metric of TFMA.

    1 - Σ w (y - ŷ)² / Σ w (y - ȳ)²,  ȳ = Σ w y / Σ w

Means and sums of squares are merged as in Chan, Golub, LeVeque, "Updating Formulae and a Pairwise
Algorithm for Computing Sample Variances" (1979), so that large labels do not cancel.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from tensorflow_model_analysis.metrics import metric_types

from components.evaluator_metrics.row_computations import Key, RowCombiner, row_computations

NAME = "r2"


class _Moments(NamedTuple):
    """Of some rows, float64."""

    weight: float = 0.0
    mean: float = 0.0  # of the labels
    spread: float = 0.0  # Σ w (y - mean)²
    error: float = 0.0  # Σ w (y - ŷ)²

    def __add__(self, other: tuple[float, ...]) -> _Moments:  # type: ignore[override]
        more = _Moments(*other)
        weight = self.weight + more.weight
        if not weight > 0.0:
            return self
        apart = more.mean - self.mean
        share = more.weight / weight
        return _Moments(
            weight,
            self.mean + apart * share,
            self.spread + more.spread + apart * apart * self.weight * share,
            self.error + more.error,
        )

    @property
    def r_squared(self) -> float:
        """NaN where there are no rows, or their labels are equal."""
        return 1.0 - self.error / self.spread if self.spread > 0.0 else math.nan


def moments(labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray) -> _Moments:
    """Return the moments of some rows; labels, predictions and weights (0 or more) `[rows]`."""
    y, answer, w = (np.asarray(v, np.float64) for v in (labels, predictions, weights))
    weight = float(w.sum())
    if not weight > 0.0:
        return _Moments()
    mean = float(w @ y / weight)
    return _Moments(weight, mean, float(w @ (y - mean) ** 2), float(w @ (y - answer) ** 2))


class RSquared(metric_types.Metric):
    """R² of a regression."""

    def __init__(self, name: str = NAME):
        super().__init__(row_computations(NAME, _Combiner), name=name)


metric_types.register_metric(RSquared)


class _Combiner(RowCombiner):
    flatten = True

    def create_accumulator(self) -> _Moments:
        return _Moments()

    def add_rows(
        self,
        accumulator: _Moments,
        labels: np.ndarray,
        predictions: np.ndarray,
        weights: np.ndarray,
    ) -> _Moments:
        return accumulator + moments(labels, predictions[:, 0], weights)

    def merge_accumulators(self, accumulators: Iterable[_Moments]) -> _Moments:
        return sum(accumulators, _Moments())

    def extract_output(self, accumulator: _Moments) -> dict[Key, float]:
        return {self.key: _Moments(*accumulator).r_squared}
