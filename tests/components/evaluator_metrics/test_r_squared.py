"""R² against NumPy in float64, merged in any parts; within TFMA: test_contract.py."""

from __future__ import annotations

import math

import numpy as np
import pytest

from components.evaluator_metrics.r_squared import _Moments, moments


def rows(shift: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    labels = random.normal(size=101) + shift
    return labels, labels + random.normal(size=101) / 2, random.integers(0, 3, 101).astype(float)


def by_hand(labels: np.ndarray, answers: np.ndarray, weights: np.ndarray) -> float:
    mean = np.average(labels, weights=weights)
    error = np.average((labels - answers) ** 2, weights=weights)
    return float(1 - error / np.average((labels - mean) ** 2, weights=weights))


def test_any_parts_give_that_of_all_rows() -> None:
    """Reference: NumPy, float64, to 1e-7: with 1e8 added, sums of squares would lose all digits."""
    for parts in [1, 7, 101]:
        for shift in [0.0, 1e8]:
            labels, answers, weights = rows(shift)
            pieces = [np.array_split(values, parts) for values in (labels, answers, weights)]
            whole = sum((moments(*piece) for piece in zip(*pieces, strict=True)), _Moments())
            assert whole.r_squared == pytest.approx(by_hand(labels, answers, weights), abs=1e-7)


def test_it_is_not_defined_of_equal_labels_or_of_no_rows() -> None:
    one = np.ones(3)
    assert math.isnan(moments(one, one * 2, one).r_squared)
    assert math.isnan(moments(one, one, one * 0).r_squared)
    assert math.isnan(_Moments().r_squared)
