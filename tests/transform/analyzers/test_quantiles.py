"""Quantiles of many columns in one analyzer, against NumPy's; tolerance: 1 % of the ranks.

Median, quartiles and quantile bounds against float64 NumPy.

Reference: NumPy on the float32 values that tf.Example holds. Tolerance: a quantile's rank is
within 0.1 % of the rows (`QUANTILE_GRID`), plus one row; whatever is computed from the quantiles
found is exact to 1e-6.

Rank errors of the sketch against NumPy's sort: the stated bound, in hard orders, however merged.

Tolerance: 0.1 % of the rows, `1 / QUANTILE_GRID`, and nothing where all values are held.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from transform import FeatureSpec
from transform.analyzers.quantiles import QuantileSketch, _QuantilesCombiner, capacity_for
from transform.block import QUANTILE_GRID

NAN = float("nan")


def test_quantiles_of_columns_without_values_do_not_shift_the_others() -> None:
    """Accumulators pass a cache."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=[2000, 4]) * [1.0, 10.0, 100.0, 1000.0]
    x[:, 1] = NAN
    x[rng.random(2000) < 0.5, 2] = NAN
    combiner = _QuantilesCombiner(4, 5)
    coder = combiner.accumulator_coder
    accumulators = [
        coder.decode_cache(
            coder.encode_cache(combiner.add_input(combiner.create_accumulator(), [part]))
        )
        for part in np.array_split(x, 7)
    ]
    (found,) = combiner.extract_output(
        combiner.compact(
            combiner.merge_accumulators([*accumulators, combiner.create_accumulator()])
        )
    )
    assert found.shape == (4, 4)
    assert not found[1].any()
    for column in (0, 2, 3):
        present = np.sort(x[~np.isnan(x[:, column]), column])
        ranks = np.searchsorted(present, found[column]) / len(present)
        np.testing.assert_allclose(ranks, [0.2, 0.4, 0.6, 0.8], atol=0.01)


pytestmark = pytest.mark.slow
ROWS = 3001
NAN_of_order = float("nan")


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
    holes = [None, NAN_of_order, float("inf"), float("-inf")]
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
    values = [NAN_of_order if v is None else v for v in RAW[name]]
    x = np.asarray(values, np.float64 if name == "offset" else np.float32).astype(np.float64)
    return np.where(np.isfinite(x), x, NAN_of_order)


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
    from transform.analyzers.quantiles import _QuantilesCombiner

    levels = [0, 10, 250, 500, 750, 990, 1000]
    x = np.random.default_rng(8).lognormal(sigma=3.0, size=[100_000, 2])
    combiner = _QuantilesCombiner(2, QUANTILE_GRID, levels)
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


GRID = 1_000
LEVELS = range(GRID + 1)
SMALL = 0.02  # an error that 40,000 values show at 10 levels, as 0.001 does at 200 million
ORDERS = {
    "ascending": lambda x: np.sort(x),
    "descending": lambda x: -np.sort(-x),
    "from both ends": lambda x: np.sort(x)[np.argsort(np.minimum(*_ends(x)), kind="stable")],
    "from the middle": lambda x: np.sort(x)[np.argsort(-np.minimum(*_ends(x)), kind="stable")],
    "in blocks": lambda x: np.sort(x.reshape(-1, 100), axis=1).ravel(),
    "random": lambda x: x,
}


def _ends(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    place = np.arange(len(x))
    return place, place[::-1]


def _worst_rank_error(found: np.ndarray, values: np.ndarray) -> float:
    """As a share of the values, over all levels; `found` must be values of the column."""
    ordered = np.sort(values)
    below = np.searchsorted(ordered, found, side="left") / len(ordered)
    up_to = np.searchsorted(ordered, found, side="right") / len(ordered)
    assert (up_to > below).all()
    level = np.arange(GRID + 1) / GRID
    return float(np.maximum(np.maximum(below - level, level - up_to), 0.0).max())


def _sketch(x: np.ndarray, capacity: int, *, shards: int) -> QuantileSketch:
    merged = QuantileSketch(x.shape[1], capacity)
    for shard in np.array_split(x, shards):
        sketch = QuantileSketch(x.shape[1], capacity)
        for start in range(0, len(shard), 1_000):
            sketch.add(shard[start : start + 1_000])
        if shards == 1:
            return sketch
        merged.merge(sketch)
    return merged


def test_the_capacity_is_the_one_of_the_docstring():
    for epsilon in (0.001, 0.01):
        capacity = capacity_for(epsilon)
        levels = capacity * epsilon
        assert capacity % 2 == 0
        assert 2**levels * capacity >= 2**32


@pytest.mark.parametrize("shards", [1, 7, 400])
def test_the_error_stays_within_its_bound_in_every_order(shards: int):
    """The bound for so many values: one step's share for each level that is in use."""
    rng = np.random.default_rng(3)
    values = rng.lognormal(sigma=2.0, size=40_000)
    x = np.stack([order(values) for order in ORDERS.values()], axis=1)
    capacity = 2 * round(10 / SMALL / 2)
    bound = np.log2(len(values) / capacity) / capacity
    assert bound < SMALL
    found = _sketch(x, capacity, shards=shards).quantiles(LEVELS, grid=GRID)
    worst = [_worst_rank_error(row, values) for row in found]
    assert max(worst) < bound / 2  # which of two values is kept takes turns: errors cancel
    assert max(worst) > 0  # it does leave values out
    assert (found[:, 0] == values.min()).all()
    assert (found[:, -1] == values.max()).all()


def test_missing_values_do_not_count():
    rng = np.random.default_rng(4)
    x = rng.normal(size=[3_000, 3])
    x[:, 1] = np.where(rng.random(3_000) < 0.9, np.nan, x[:, 1])
    x[:, 2] = np.nan
    found = _sketch(x, 4_000, shards=3).quantiles(LEVELS, grid=GRID)
    for j in (0, 1):
        present = np.sort(x[~np.isnan(x[:, j]), j])
        at = np.minimum(np.arange(GRID + 1) * len(present) // GRID, len(present) - 1)
        np.testing.assert_array_equal(found[j], present[at])
    assert not found[2].any()


def test_what_it_holds_of_a_million_rows():
    """Less than 0.6 MB a column, where the values are 8 MB."""
    x = np.random.default_rng(5).normal(size=[1_000_000, 2])
    sketch = _sketch(x, capacity_for(1 / GRID), shards=1)
    assert sketch.held_bytes < 2 * 0.6e6
    sketch.compact()
    assert sketch.held_bytes < 2 * 0.5e6
    worst = [_worst_rank_error(sketch.quantiles(LEVELS, grid=GRID)[j], x[:, j]) for j in range(2)]
    assert max(worst) < 0.3 / GRID  # far below the bound on random rows


def test_merging_leaves_the_parts_as_they_are():
    x = np.random.default_rng(6).normal(size=[5_000, 2])
    part = _sketch(x, 100, shards=1)
    before = part.quantiles(LEVELS, grid=GRID)
    merged = QuantileSketch(2, 100)
    merged.merge(part)
    merged.merge(part)
    np.testing.assert_array_equal(part.quantiles(LEVELS, grid=GRID), before)
