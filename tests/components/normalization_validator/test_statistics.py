"""The mergeable statistics against rational arithmetic and float64 NumPy."""

from __future__ import annotations

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tensorflow_metadata.proto.v0 import schema_pb2

from components.normalization_validator.columns import Batch, Column, Feature, FeatureSet, Values
from components.normalization_validator.report import ColumnStatistics, SplitStatistics
from components.normalization_validator.statistics import (
    ComputeStatistics,
    _FeatureState,
    _PixelState,
)
from shared_core.feature_layout import ImageFeature

_FINITE = st.floats(-(2.0**99), 2.0**99, width=32)
_ORDINARY = st.floats(-1000, 1000, width=32)
_ANY = st.floats(width=32)


def _combine(columns: int) -> ComputeStatistics:
    feature = Feature("x", columns, tuple(Column(f"x[{i}]", None, i) for i in range(columns)))
    return ComputeStatistics(FeatureSet((feature,), None, schema_pb2.Schema()), "train")


def _batch(x: np.ndarray, imputed: np.ndarray | None) -> Batch:
    return Batch(len(x), (Values(x.astype(np.float64), imputed, 0),))


def _in_one(x: np.ndarray, imputed: np.ndarray | None = None) -> SplitStatistics:
    combine = _combine(x.shape[1])
    return combine.extract_output(
        combine.add_input(combine.create_accumulator(), _batch(x, imputed))
    )


def _column(values: np.ndarray, imputed: np.ndarray | None = None) -> ColumnStatistics:
    mask = None if imputed is None else imputed.reshape(-1, 1)
    return _in_one(values.reshape(-1, 1), mask).columns[0]


@st.composite
def _cut_up(draw, elements=_ANY):
    """A matrix, a mask, cuts into batches, and an order in which to merge the parts."""
    rows, columns = draw(st.integers(1, 40)), draw(st.integers(1, 3))
    x = draw(hnp.arrays(np.float32, (rows, columns), elements=elements))
    imputed = draw(st.none() | hnp.arrays(bool, (rows, columns)))
    cuts = sorted(draw(st.lists(st.integers(0, rows), max_size=6)))
    parts = len(cuts) + 1
    order = draw(st.permutations(range(parts)))
    joins = draw(st.lists(st.integers(0, parts), min_size=parts, max_size=parts))
    return x, imputed, cuts, order, joins


def _assert_same(found: SplitStatistics, expected: SplitStatistics) -> None:
    """All but mean and standard deviation exactly; these to 1e-12 of the largest value."""
    moments = {"mean": None, "std": None}
    assert found.rows == expected.rows
    for one, other in zip(found.columns, expected.columns, strict=True):
        assert one.model_copy(update=moments) == other.model_copy(update=moments)
        size = max(abs(other.min or 0.0), abs(other.max or 0.0))
        for name in moments:
            value, wanted = getattr(one, name), getattr(other, name)
            assert value == wanted or value == pytest.approx(wanted, rel=1e-9, abs=1e-12 * size)


@settings(max_examples=200)
@given(_cut_up())
def test_any_cut_and_any_merge_order_gives_the_same_report(case):
    """Infinities, NaN and subnormals included."""
    x, imputed, cuts, order, joins = case
    combine = _combine(x.shape[1])
    parts = list(zip(np.split(x, cuts), _split(imputed, cuts), strict=True))
    accumulators = []
    for part, join in zip(order, joins, strict=True):
        if join % 2 and accumulators:  # into the accumulator of another part
            accumulators[-1] = combine.add_input(accumulators[-1], _batch(*parts[part]))
        else:
            accumulators.append(
                combine.add_input(combine.create_accumulator(), _batch(*parts[part]))
            )
    while len(accumulators) > 1:
        i = joins[len(accumulators) % len(joins)] % (len(accumulators) - 1)
        accumulators[i : i + 2] = [combine.merge_accumulators(accumulators[i : i + 2])]
    _assert_same(combine.extract_output(accumulators[0]), _in_one(x, imputed))


def _split(imputed, cuts):
    return [None] * (len(cuts) + 1) if imputed is None else np.split(imputed, cuts)


@settings(max_examples=200)
@given(hnp.arrays(np.float32, st.integers(1, 60), elements=_FINITE | _ORDINARY))
def test_moments_match_rational_arithmetic(x):
    """Reference: Fractions; to 1e-12, of a mean near 0 to 1e-15 of the largest value."""
    exact = [Fraction(float(v)) for v in x]
    mean = sum(exact) / len(exact)
    variance = sum((v - mean) ** 2 for v in exact) / len(exact)
    got = _column(x)
    assert (got.count, got.min, got.max) == (len(x), x.min(), x.max())
    size = float(np.abs(x).max())
    assert got.mean == pytest.approx(float(mean), rel=1e-12, abs=1e-15 * size)
    assert got.std == pytest.approx(math.sqrt(variance), rel=1e-12, abs=1e-15 * size)


@settings(max_examples=200)
@given(
    hnp.arrays(np.float32, st.integers(1, 60), elements=_FINITE | _ORDINARY),
    st.randoms(use_true_random=False),
)
def test_the_histogram_is_numpys(x, random):
    imputed = np.array([random.random() < 0.3 for _ in x])
    histogram = _column(x, imputed).histogram
    assert histogram is not None
    assert (histogram.below, histogram.above) == ((x < -16).sum(), (x >= 16).sum())
    inside = (x >= -16) & (x < 16)
    x, imputed = x[inside], imputed[inside]
    bins = np.floor(x.astype(np.float64) * 16).astype(np.int64)
    assert not bins.size or bins.min() == histogram.first_bin
    for counts, group in ((histogram.observed, ~imputed), (histogram.imputed, imputed)):
        index = bins[group] - histogram.first_bin
        assert counts == tuple(np.bincount(index, minlength=len(counts)))


def test_imputed_values_enter_min_max_and_histogram_but_not_mean_and_std():
    x = np.array([1.0, 2.0, 3.0, -5.0, -5.0], np.float32)
    got = _column(x, np.array([False, False, False, True, True]))
    assert (got.values, got.count, got.imputed) == (5, 3, 2)
    assert got.imputed_share == 0.4
    assert (got.mean, got.std) == (2.0, pytest.approx(math.sqrt(2 / 3), rel=1e-15))
    assert (got.min, got.max) == (-5.0, 3.0)
    assert got.histogram is not None
    assert sum(got.histogram.imputed) == 2
    assert not got.constant


def test_non_finite_values_are_counted_and_enter_nothing():
    got = _column(np.array([1.0, np.nan, np.inf, -np.inf], np.float32))
    assert (got.values, got.count, got.non_finite, got.non_finite_share) == (4, 1, 3, 0.75)
    assert (got.mean, got.std, got.min, got.max, got.constant) == (1.0, 0.0, 1.0, 1.0, True)
    got = _column(np.array([np.nan, np.nan], np.float32))
    assert (got.count, got.non_finite, got.constant) == (0, 2, False)
    assert got.mean is got.std is got.min is got.max is got.histogram is None
    # 0.1 is no binary number: a rounded mean would leave a standard deviation of 1e-9.
    got = _column(np.full(30_011, 0.1, np.float32))
    assert (got.constant, got.std) == (True, 0.0)
    combine = _combine(2)
    empty = combine.extract_output(combine.create_accumulator())
    assert (empty.rows, [c.count for c in empty.columns]) == (0, [0, 0])


def test_memory_does_not_grow_with_rows():
    def size(rows: int) -> int:
        state = _FeatureState(3)
        x = np.random.default_rng(0).normal(size=(rows, 3)) * 1e5
        for part in np.array_split(x, max(rows // 100, 1)):
            state.add(Values(part, None, 0))
        return len(pickle.dumps(state))

    assert size(100_000) <= size(100) * 1.01


def test_counts_of_bytes_are_as_good_as_pixels():
    """Reference: the statistics of each normalised pixel; moments to 1e-12, the rest exactly."""
    random = np.random.default_rng(0)
    parts = random.integers(20, 200, [2, 300, 2])
    variance = (1234.5, 0.0)
    image = ImageFeature(
        **dict.fromkeys(("name", "source", "group"), "x"),
        height=30,
        width=10,
        channels=2,
        mean=(90.5, 3.0),
        variance=variance,
    )
    states, expected = [_PixelState(image), _PixelState(image)], _FeatureState(2)
    for pixels, state in zip(parts, states, strict=True):
        counts = np.stack([np.bincount(each, minlength=256) for each in pixels.T], axis=1)
        state.add(Values(counts, None, 0))
        normalised = (pixels - [90.5, 3.0]) * [1 / math.sqrt(1234.5), 0.0]
        expected.add(Values(normalised, None, 0))
    states[0].merge(states[1])
    found = states[0].normalised()
    for name, value in vars(expected).items():
        if name in ("mean", "squares"):
            np.testing.assert_allclose(getattr(found, name), value, rtol=1e-12, atol=1e-12)
        else:
            np.testing.assert_array_equal(getattr(found, name), value, name)
