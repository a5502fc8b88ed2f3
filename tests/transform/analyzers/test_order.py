"""Median, quartiles and quantile bounds against float64 NumPy.

Reference: NumPy on the float32 values that tf.Example holds. Tolerance: a quantile's rank is
within 0.1 % of the rows (`QUANTILE_GRID`), plus one row; whatever is computed from the quantiles
found is exact to 1e-6.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from transform import FeatureSpec
from transform.analyzers.statistic import QUANTILE_GRID

pytestmark = pytest.mark.slow
ROWS = 3001
NAN = float("nan")


def _columns() -> dict[str, list[Any]]:
    rng = np.random.default_rng(5)
    floats = {
        "normal": rng.normal(3.0, 2.0, ROWS),
        "skewed": rng.exponential(1e3, ROWS),
        "cauchy": rng.standard_cauchy(ROWS),
        "zero_inflated": np.where(rng.random(ROWS) < 0.8, 0.0, rng.exponential(50.0, ROWS)),
        "constant": np.full(ROWS, 0.1),
        "dense": rng.normal(0.0, 1.0, ROWS),
    }
    holes = [None, NAN, float("inf"), float("-inf")]
    columns: dict[str, list[Any]] = {}
    for name, values in floats.items():
        hole = (rng.random(ROWS) < 0.25) & (name != "dense")
        columns[name] = [
            holes[rng.integers(4)] if h else float(v)
            for v, h in zip(values.astype(np.float32), hole, strict=True)
        ]
    columns["offset"] = [int(v) for v in 10**9 + rng.integers(-5, 6, ROWS)]
    columns["empty"] = [None] * ROWS
    columns["one_value"] = [None] * (ROWS - 1) + [5.0]
    return columns


RAW = _columns()
GROUPS: dict[str, dict[str, Any]] = {
    "robust": {"scale": "robust"},
    "robust_clip": {"scale": "robust", "clip": {"quantiles": [0.01, 0.99]}},
    "z_median": {"scale": "z_score", "impute": "median"},
    "min_max_clip": {"scale": "min_max", "clip": {"quantiles": [0.05, 0.9]}},
    "log1p_clip": {"scale": "log1p", "clip": {"quantiles": [0, 0.9]}},
    "none_clip": {"scale": "none", "clip": {"quantiles": [0.01, 0.99]}},
    "none_median": {"scale": "none", "impute": "median"},
    "constant_clip": {
        "scale": "none",
        "impute": {"constant": -7.0},
        "clip": {"quantiles": [0.1, 0.9]},
    },
    "z": {"scale": "z_score"},
}
COLUMNS = {f"{group}.{name}": values for group in GROUPS for name, values in RAW.items()}
SPEC = {
    "groups": [{"name": group, "columns": f"{group}.*", **chain} for group, chain in GROUPS.items()]
}


@pytest.fixture(scope="module")
def result(run_transform: Any) -> Any:
    return run_transform(SPEC, COLUMNS, dense=[f"{g}.dense" for g in GROUPS], batch_size=211)


def _raw(name: str) -> np.ndarray:
    values = [NAN if v is None else v for v in RAW[name]]
    x = np.asarray(values, np.float64 if name == "offset" else np.float32).astype(np.float64)
    return np.where(np.isfinite(x), x, NAN)


def _assert_quantile(found: float, present: np.ndarray, level: float) -> None:
    """`found` is one of the values, and its rank is off by the tolerance at most."""
    tolerance = 1.0 / QUANTILE_GRID + 1.0 / len(present)
    assert np.isclose(present, found, rtol=1e-6, atol=1e-30).any()
    below = np.mean(present < found - abs(found) * 1e-6)
    up_to = np.mean(present <= found + abs(found) * 1e-6)
    assert below - tolerance <= level <= up_to + tolerance


def _quantile(x: np.ndarray, level: float) -> float:
    return float(np.nanquantile(x, level, method="inverted_cdf")) if (x == x).any() else 0.0


WITH_VALUES = [name for name in RAW if name != "empty"]


@pytest.mark.parametrize("name", WITH_VALUES)
def test_quantiles_are_values_of_the_right_rank(result: Any, name: str) -> None:
    """`none` writes bounds (its extremes) and median (where the value is missing) as they are."""
    x = _raw(name)
    present = x[~np.isnan(x)]
    clipped = result.column(f"none_clip.{name}")
    _assert_quantile(clipped.min(), present, 0.01)
    _assert_quantile(clipped.max(), present, 0.99)
    low, high = clipped.min(), clipped.max()
    expected = np.clip(x, low, high)[~np.isnan(x)]
    np.testing.assert_allclose(clipped[~np.isnan(x)], expected, rtol=1e-6)
    if np.isnan(x).any():
        for group in ("none_median", "none_clip"):
            medians = np.unique(result.column(f"{group}.{name}")[np.isnan(x)])
            assert len(medians) == 1
            _assert_quantile(medians[0], present, 0.5)


def _band(x: np.ndarray, level: float) -> tuple[float, float]:
    """The lowest and highest value that the sketch may give for a quantile."""
    tolerance = 1.0 / QUANTILE_GRID + 1.0 / np.sum(~np.isnan(x))
    return _quantile(x, max(level - tolerance, 0.0)), _quantile(x, min(level + tolerance, 1.0))


@pytest.mark.parametrize("group", ["robust", "robust_clip", "min_max_clip", "z_median"])
@pytest.mark.parametrize("name", ["constant", "empty", "one_value"])
def test_nothing_that_varies_gives_0(result: Any, group: str, name: str) -> None:
    assert not result.column(f"{group}.{name}").any()


@pytest.mark.parametrize("name", ["normal", "skewed", "cauchy", "offset", "dense"])
def test_min_max_between_quantiles_fills_the_unit_interval(result: Any, name: str) -> None:
    """The clipped values' own minimum and maximum: any other would leave a gap."""
    found = result.column(f"min_max_clip.{name}")
    assert found.min() == 0.0
    assert found.max() == 1.0
    x = _raw(name)
    low, high = _quantile(x, 0.05), _quantile(x, 0.9)
    expected = (np.clip(x, low, high) - low) / (high - low)
    present = ~np.isnan(x)
    np.testing.assert_allclose(found[present], expected[present], atol=0.02)


def test_log1p_is_of_the_clipped_values(result: Any) -> None:
    x = _raw("skewed")
    found = result.column("log1p_clip.skewed")[~np.isnan(x)]
    high = np.expm1(found.max(), dtype=np.float64)
    _assert_between(high, _band(x, 0.9))
    expected = np.log1p(np.minimum(x, high))[~np.isnan(x)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def _assert_between(value: float, band: tuple[float, float]) -> None:
    assert band[0] * (1 - 1e-5) <= value <= band[1] * (1 + 1e-5)


def test_a_median_moves_no_z_score_of_a_value_that_is_present(result: Any) -> None:
    for name in WITH_VALUES:
        present = ~np.isnan(_raw(name))
        median, mean = (result.column(f"{group}.{name}") for group in ("z_median", "z"))
        assert median[present].tobytes() == mean[present].tobytes()


def test_an_imputed_constant_is_not_clipped(result: Any) -> None:
    missing = np.isnan(_raw("normal"))
    assert (result.column("constant_clip.normal")[missing] == -7.0).all()


def test_the_kind_in_the_layout_is_the_scale(result: Any) -> None:
    kinds = {column.name: column.kind for column in result.layout.columns}
    assert kinds["robust_clip.normal"] == "robust"
    assert np.isfinite(result.written["packed_float"]).all()


def test_serving_computes_what_was_written_bit_for_bit(result: Any) -> None:
    result.check_serving()


@pytest.mark.parametrize(
    ("chain", "filling"),
    [
        ({"scale": "z_score"}, "mean"),
        ({"scale": "robust"}, "median"),
        ({"scale": "robust", "impute": "mean"}, "mean"),
        ({"scale": "min_max", "clip": {"quantiles": [0.1, 0.9]}}, "median"),
        ({"scale": "min_max", "impute": {"constant": 2}}, 2.0),
    ],
)
def test_what_a_missing_value_becomes_by_default(chain: dict[str, Any], filling: Any) -> None:
    spec = FeatureSpec.model_validate({"groups": [{"name": "g", "columns": "a", **chain}]})
    assert spec.groups[0].filling == filling
    assert FeatureSpec.model_validate(spec.model_dump(mode="json")) == spec


@pytest.mark.parametrize("shards", [1, 2, 50])
def test_shards_merge_within_the_stated_error(shards: int) -> None:
    """Reference: ranks in NumPy's sort of all 100,000 rows; tolerance 0.1 % of them."""
    from transform.analyzers.quantiles import QuantilesCombiner

    levels = [0, 10, 250, 500, 750, 990, 1000]
    x = np.random.default_rng(8).lognormal(sigma=3.0, size=[100_000, 2])
    combiner = QuantilesCombiner(2, QUANTILE_GRID, levels)
    coder = combiner.accumulator_coder
    accumulators = []
    for shard in np.array_split(x, shards):
        accumulator = combiner.create_accumulator()
        for batch in np.array_split(shard, 10):
            accumulator = combiner.add_input(accumulator, [batch])
        accumulators.append(coder.decode_cache(coder.encode_cache(combiner.compact(accumulator))))
    (found,) = combiner.extract_output(combiner.merge_accumulators(accumulators))
    for column in range(2):
        ranks = np.searchsorted(np.sort(x[:, column]), found[column]) / len(x)
        np.testing.assert_allclose(ranks, np.asarray(levels) / QUANTILE_GRID, atol=1e-3)
    np.testing.assert_array_equal(found[:, 0], x.min(axis=0))
    np.testing.assert_array_equal(found[:, -1], x.max(axis=0))
