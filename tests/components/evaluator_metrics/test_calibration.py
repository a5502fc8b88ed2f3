"""Calibration against NumPy in float64, merged in any parts; within TFMA: test_contract.py."""

from __future__ import annotations

import math

import numpy as np
import pytest

from components.evaluator_metrics.calibration import _BINS, _Bins, _bins_of


def rows(kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, probabilities and weights, the ends 0 and 1 among them."""
    random = np.random.default_rng(6)
    weights = random.integers(0, 3, 211).astype(float)
    if kind == "binary":
        p = np.r_[0.0, 1.0, 0.1, random.beta(0.6, 0.8, 208)][:, None].astype(np.float32)
        return (random.uniform(size=211) < p[:, 0] ** 1.3).astype(float), p, weights
    p = random.dirichlet([0.5, 1.0, 2.0], 211).astype(np.float32)
    return random.integers(0, 3, 211).astype(float), p, weights


def by_hand(labels: np.ndarray, p: np.ndarray, weights: np.ndarray) -> float:
    p = p.astype(float)
    came = labels if p.shape[1] == 1 else labels == p.argmax(1)
    top = p.max(1)
    error = 0.0
    for i in range(_BINS):
        last = i == _BINS - 1
        inside = (top * _BINS >= i) & ((top * _BINS < i + 1) | last) & (weights > 0)
        if inside.any():
            w = weights[inside]
            mean, share = np.average(top[inside], weights=w), np.average(came[inside], weights=w)
            error += w.sum() / weights.sum() * abs(mean - share)
    return error


def test_any_parts_give_that_of_all_rows() -> None:
    """Reference: NumPy, float64, to 1e-12."""
    for parts in [1, 7, 211]:
        for kind in ["binary", "multiclass"]:
            pieces = [np.array_split(values, parts) for values in rows(kind)]
            found = [np.stack(_bins_of(*piece)) for piece in zip(*pieces, strict=True)]
            assert _Bins(*np.sum(found, axis=0)).error == pytest.approx(
                by_hand(*rows(kind)), abs=1e-12
            )


def test_it_is_not_defined_of_no_rows_or_of_labels_that_are_none() -> None:
    one = np.ones(3)
    assert math.isnan(_bins_of(one, one[:, None], one * 0).error)
    assert math.isnan(_bins_of(one * math.nan, one[:, None], one).error)
    assert _bins_of(np.r_[1.0, math.nan], np.ones((2, 1)), np.r_[1.0, 0.0]).error == 0.0
