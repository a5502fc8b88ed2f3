"""The score histogram against confusion matrices of NumPy, merged in any parts."""

from __future__ import annotations

import numpy as np

from components.evaluator_metrics.score_histogram import BINS, EDGES, _histogram_of


def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, float32 probabilities and weights; ends and thresholds are among them."""
    random = np.random.default_rng(3)
    p = np.r_[0.0, 1.0, 0.5, 0.01, random.beta(0.2, 0.9, 496)][:, None].astype(np.float32)
    y = (random.uniform(size=500) < p[:, 0]).astype(float)
    return y, p, random.integers(0, 3, 500).astype(float)


def test_any_parts_give_the_confusion_matrix_at_each_threshold() -> None:
    """Reference: NumPy, exact, as the weights are whole numbers."""
    for parts in [1, 7, 500]:
        y, p, w = rows()
        both = np.hstack([1 - p, p])  # of two outputs, the last is that of class 1
        np.testing.assert_array_equal(_histogram_of(y, both, w), _histogram_of(y, p, w))
        pieces = zip(*(np.array_split(values, parts) for values in (y, p, w)), strict=True)
        negative, positive = np.sum([_histogram_of(*piece) for piece in pieces], axis=0)
        assert positive.shape == (BINS,)
        for i, threshold in enumerate(EDGES):
            hit = p[:, 0].astype(float) > threshold
            assert positive[i + 1 :].sum() == (w * y * hit).sum()
            assert negative[i + 1 :].sum() == (w * (1 - y) * hit).sum()
        assert positive.sum() + negative.sum() == w.sum()


def test_the_thresholds_are_few_and_have_hundredths() -> None:
    assert len(EDGES) <= 200
    assert np.isin(np.arange(101) / 100, EDGES).all()


def test_what_is_no_number_is_seen_unless_it_has_no_weight() -> None:
    y, p = np.array([1.0, np.nan]), np.array([[np.nan], [0.2]])
    assert np.isnan(_histogram_of(y, p, np.array([1.0, 0.0])).sum())
    assert np.isnan(_histogram_of(y, p, np.array([0.0, 1.0])).sum())
    assert _histogram_of(y, p, np.zeros(2)).sum() == 0.0
