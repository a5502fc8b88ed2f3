"""Our metrics, merged in any parts, and where they are undefined.

Their values against scikit-learn, within TFMA: test_contract.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from components.evaluator_metrics.calibration import _Bins, _bins_of
from components.evaluator_metrics.r_squared import _Moments, moments
from components.evaluator_metrics.score_histogram import BINS, EDGES, _histogram_of

Rows = list[np.ndarray]


def rows(classes: int, shift: float = 0.0) -> Rows:
    """Labels, predictions and weights; of no class: numbers."""
    random = np.random.default_rng(6)
    weights = random.integers(0, 3, 211).astype(float)
    if classes == 0:
        labels = random.normal(size=211) + shift
        return [labels, labels + random.normal(size=211) / 2, weights]
    if classes == 2:
        p = np.r_[0.0, 1.0, 0.5, 0.01, random.beta(0.2, 0.9, 207)][:, None].astype(np.float32)
        return [(random.uniform(size=211) < p[:, 0]).astype(float), p, weights]
    p = random.dirichlet([0.5, 1.0, 2.0], 211).astype(np.float32)
    return [random.integers(0, classes, 211).astype(float), p, weights]


def r_squared(parts: list[Rows]) -> float:
    return sum((moments(*part) for part in parts), _Moments()).r_squared


def calibration_error(parts: list[Rows]) -> float:
    return _Bins(*np.sum([np.stack(_bins_of(*part)) for part in parts], axis=0)).error


@pytest.mark.parametrize("parts", [7, 211])
@pytest.mark.parametrize(
    ("metric", "whole"),
    [
        (r_squared, rows(0)),
        (r_squared, rows(0, 1e8)),  # sums of squares would lose all digits
        (calibration_error, rows(2)),
        (calibration_error, rows(3)),
    ],
)
def test_any_parts_give_that_of_all_rows(
    metric: Callable[[list[Rows]], float], whole: Rows, parts: int
) -> None:
    pieces = [list(piece) for piece in zip(*(np.array_split(v, parts) for v in whole), strict=True)]
    assert metric(pieces) == pytest.approx(metric([whole]), abs=1e-7)


@pytest.mark.parametrize("parts", [1, 7, 211])
def test_the_histogram_has_the_confusion_matrix_at_each_threshold(parts: int) -> None:
    """Reference: NumPy, exact, as the weights are whole numbers."""
    y, p, w = rows(2)
    both = np.hstack([1 - p, p])  # of two outputs, the last is that of class 1
    np.testing.assert_array_equal(_histogram_of(y, both, w), _histogram_of(y, p, w))
    pieces = zip(*(np.array_split(values, parts) for values in (y, p, w)), strict=True)
    negative, positive = np.sum([_histogram_of(*piece) for piece in pieces], axis=0)
    assert positive.shape == (BINS,)
    for i, threshold in enumerate(EDGES):
        hit = p[:, 0].astype(float) > threshold
        assert positive[i + 1 :].sum() == (w * y * hit).sum()
        assert negative[i + 1 :].sum() == (w * (1 - y) * hit).sum()
    assert len(EDGES) <= 200
    assert np.isin(np.arange(101) / 100, EDGES).all()


def test_where_they_are_undefined() -> None:
    """Of equal labels, of no rows, and of what is no number; a row without weight is no row."""
    one, nan = np.ones(3), np.r_[1.0, math.nan]
    assert math.isnan(moments(one, one * 2, one).r_squared)
    assert math.isnan(moments(one, one, one * 0).r_squared)
    assert math.isnan(_bins_of(one, one[:, None], one * 0).error)
    assert math.isnan(_bins_of(one * math.nan, one[:, None], one).error)
    assert _bins_of(nan, np.ones((2, 1)), np.r_[1.0, 0.0]).error == 0.0
    p = np.array([[math.nan], [0.2]])
    assert np.isnan(_histogram_of(nan, p, np.array([1.0, 0.0])).sum())
    assert np.isnan(_histogram_of(nan, p, np.array([0.0, 1.0])).sum())
    assert _histogram_of(nan, p, np.zeros(2)).sum() == 0.0
