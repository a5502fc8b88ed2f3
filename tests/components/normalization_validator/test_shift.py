"""Shift between splits: no alarm on random splits of heavy tails, and an alarm on a real shift."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from tensorflow_metadata.proto.v0 import schema_pb2

from components.normalization_validator import value_grid
from components.normalization_validator.check import find_violations
from components.normalization_validator.columns import Batch, Column, Feature, FeatureSet, Values
from components.normalization_validator.limits import NormalizationLimits
from components.normalization_validator.report import SplitStatistics, Violation
from components.normalization_validator.shift import by_chance
from components.normalization_validator.statistics import ComputeStatistics, Measured, with_shifts

LAWS = ("normal", "cauchy", "t2", "lognormal", "lognormal3", "pareto", "counts")


def _draw(law: str, rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return {
        "normal": lambda: rng.standard_normal(size),
        "cauchy": lambda: rng.standard_cauchy(size),
        "t2": lambda: rng.standard_t(2, size),
        "lognormal": lambda: rng.lognormal(0, 1, size),
        "lognormal3": lambda: rng.lognormal(0, 3, size),
        "pareto": lambda: rng.pareto(0.5, size),
        "counts": lambda: rng.poisson(0.3, size).astype(float),
    }[law]()


def _measured(split: str, x: np.ndarray) -> Measured:
    columns = tuple(Column(f"c{i}", None, i) for i in range(x.shape[1]))
    features = FeatureSet((Feature("x", len(columns), columns),), None, schema_pb2.Schema())
    combine = ComputeStatistics(features, split)
    batch = Batch(len(x), (Values(x, None, 0),))
    return combine.extract_output(combine.add_input(combine.create_accumulator(), batch))


def _splits(train: np.ndarray, held_out: np.ndarray) -> list[SplitStatistics]:
    """Both z-scored as Transform does, by train's moments, in float32."""
    mean, std = train.mean(0), train.std(0)
    scaled = [((x - mean) / std).astype(np.float32).astype(float) for x in (train, held_out)]
    measured = [_measured(*each) for each in zip(("train", "eval"), scaled, strict=True)]
    return [with_shifts(each, measured[0]) for each in measured]


def _violations(train: np.ndarray, held_out: np.ndarray) -> list[Violation]:
    splits = _splits(train, held_out)
    return find_violations({s.split: s.columns for s in splits}, NormalizationLimits())


@pytest.mark.parametrize("rows", [500, 15_000])
@pytest.mark.parametrize("law", LAWS)
def test_a_random_split_is_no_shift_whatever_its_tails(law, rows):
    """Many columns are as many seeds.

    By means, 2 % to 18 % of the Cauchy, lognormal(0, 3) and Pareto ones were violations.
    """
    rng = np.random.default_rng(rows)
    x = _draw(law, rng, (rows, 300 if rows == 500 else 50))
    assert _violations(x[: rows * 2 // 3], x[rows * 2 // 3 :]) == []


@pytest.mark.parametrize("law", ["normal", "cauchy", "t2", "lognormal"])
@pytest.mark.parametrize("change", ["mean by 0.3 sd", "scale x 1.5", "unit"])
def test_a_real_shift_of_15_000_rows_is_found(law, change):
    rng = np.random.default_rng(7)
    train, held_out = _draw(law, rng, (10_000, 20)), _draw(law, rng, (5_000, 20))
    # A Cauchy column has no standard deviation: what the quartiles of a normal one say instead.
    quartiles = np.subtract(*np.percentile(train, [75, 25], axis=0)) / 1.349
    spread = quartiles if law in ("cauchy", "t2") else train.std(0)
    changed = {
        "mean by 0.3 sd": held_out + 0.3 * spread,
        "scale x 1.5": held_out * 1.5,
        "unit": held_out * 1000,
    }[change]
    assert {v.column for v in _violations(train, changed)} == {f"c{i}" for i in range(20)}


@pytest.mark.parametrize("law", ["normal", "cauchy", "t2", "lognormal"])
def test_a_change_of_unit_is_found_in_500_rows(law):
    rng = np.random.default_rng(8)
    train, held_out = _draw(law, rng, (333, 50)), _draw(law, rng, (167, 50))
    assert {v.column for v in _violations(train, held_out * 1000)} == {f"c{i}" for i in range(50)}


def test_few_values_far_out_move_the_mean_and_no_rank():
    rng = np.random.default_rng(9)
    train, held_out = rng.standard_normal((10_000, 1)), rng.standard_normal((5_000, 1))
    held_out[:100] = 9999.0  # what someone writes for a missing value
    (violation,) = _violations(train, held_out)
    assert violation.statistic == "mean_shift"


def test_one_value_far_out_is_one_standard_error_however_far():
    rng = np.random.default_rng(10)
    train, held_out = rng.standard_normal((10_000, 1)), rng.standard_normal((5_000, 1))
    held_out[0] = 1e9
    assert _violations(train, held_out) == []
    found = _splits(train, held_out)[1].columns[0].shift
    assert found is not None
    assert found.mean is not None
    assert found.mean > 1e5
    assert found.mean_errors == pytest.approx(1.0, abs=0.01)


def test_moved_is_kuipers_statistic_up_to_the_bins():
    """Reference: both empirical distribution functions at every value, float64.

    The bins of float32 can only lose: by less than 0.01 here.
    """
    rng = np.random.default_rng(11)
    train, held_out = rng.standard_normal((4_000, 1)), 0.2 + 1.3 * rng.standard_normal((3_000, 1))
    found = _splits(train, held_out)[1].columns[0].shift
    assert found is not None
    at = np.sort(np.concatenate([train, held_out])[:, 0])
    share, train_share = (
        np.searchsorted(np.sort(x[:, 0]), at, side="right") / len(x) for x in (held_out, train)
    )
    difference = share - train_share
    exact = max(difference.max(), 0) - min(difference.min(), 0)
    assert exact - 0.01 < found.moved <= exact
    assert abs(found.share - found.train_share) == pytest.approx(found.moved, abs=1e-12)
    assert found.low is not None  # fewer values in the middle, more outside
    assert found.high is not None
    assert found.low < 0 < found.high


def test_what_chance_reaches_is_kuipers_distribution():
    """Reference: SciPy's Kolmogorov distribution bounds it from below, twice it from above.

    And 5 % of random splits exceed the value for 0.05, of 4,000: 0.05 +- 0.01.
    """
    exceeded = 0
    limit = by_chance(0.05, 80, 120)
    rng = np.random.default_rng(12)
    for _ in range(4_000):
        ranks = rng.permutation(200)
        steps = np.where(ranks < 80, 1 / 80, -1 / 120)
        sums = np.concatenate([[0.0], np.cumsum(steps)])
        exceeded += sums.max() - sums.min() > limit
    assert exceeded / 4_000 == pytest.approx(0.05, abs=0.01)
    root = np.sqrt(80 * 120 / 200)
    assert stats.kstwobign.isf(1e-6) / root < by_chance(1e-6, 80, 120)
    assert by_chance(1e-6, 80, 120) < 2 * stats.kstwobign.isf(1e-6) / root
    assert by_chance(1e-6, 5, 10_000) > 1  # five values cannot show a shift


def test_bins_hold_the_values_between_their_edges():
    rng = np.random.default_rng(13)
    x = rng.standard_normal(2_000) * 2.0 ** rng.integers(-25, 20, 2_000)
    x = np.concatenate([x, [0.0, -0.0, 1e300, -1e300]]).astype(np.float32).astype(float)
    x = np.clip(x, -1e300, 1e300)
    index, edges = value_grid.bin_of(x), value_grid.edges()
    assert len(edges) == value_grid.BINS + 1
    assert np.all(np.diff(edges) > 0)
    assert np.all((edges[index] <= x) & (x <= edges[index + 1]))
    assert np.all(np.diff(value_grid.bin_of(np.sort(x))) >= 0)


def test_a_split_with_one_value_where_train_has_another_has_moved_altogether():
    train, held_out = _measured("train", np.zeros((1000, 1))), _measured("eval", np.ones((500, 1)))
    splits = [with_shifts(each, train) for each in (train, held_out)]
    (violation,) = find_violations({s.split: s.columns for s in splits}, NormalizationLimits())
    assert violation.statistic == "moved"
    assert "100 % of the values lie" in violation.message
