"""Quantiles of many columns in one analyzer, against NumPy's; tolerance: 1 % of the ranks.

Median, quartiles and quantile bounds against float64 NumPy.

Reference: NumPy on the float32 values that tf.Example holds. Tolerance: a quantile's rank is
within 0.1 % of the rows (`QUANTILE_GRID`), plus one row; whatever is computed from the quantiles
found is exact to 1e-6.

Rank errors of the sketch against NumPy's sort: the stated bound, in hard orders, however merged.

Tolerance: 0.1 % of the rows, `1 / QUANTILE_GRID`, and nothing where all values are held.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from transform.analyzers.quantiles import QuantileSketch, _QuantilesCombiner, capacity_for
from transform.block import QUANTILE_GRID

pytestmark = pytest.mark.slow


def test_shards_merge_within_the_stated_error() -> None:
    """Reference: ranks in NumPy's sort of all 100,000 rows; tolerance 0.1 % of them."""
    for shards in [1, 2, 50]:
        levels = [0, 10, 250, 500, 750, 990, 1000]
        x = np.random.default_rng(8).lognormal(sigma=3.0, size=[100_000, 2])
        combiner = _QuantilesCombiner(2, QUANTILE_GRID, levels)
        coder = combiner.accumulator_coder
        accumulators = []
        for shard in np.array_split(x, shards):
            accumulator = combiner.create_accumulator()
            for batch in np.array_split(shard, 10):
                accumulator = combiner.add_input(accumulator, [batch])
            accumulators.append(
                coder.decode_cache(coder.encode_cache(combiner.compact(accumulator)))
            )
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


def test_the_error_stays_within_its_bound_in_every_order():
    """The bound for so many values: one step's share for each level that is in use."""
    for shards in [1, 7, 400]:
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


def test_what_it_holds_of_a_million_rows():
    """Less than 0.6 MB a column, where the values are 8 MB."""
    x = np.random.default_rng(5).normal(size=[1_000_000, 2])
    sketch = _sketch(x, capacity_for(1 / GRID), shards=1)
    assert sketch.held_bytes < 2 * 0.6e6
    sketch.compact()
    assert sketch.held_bytes < 2 * 0.5e6
    worst = [_worst_rank_error(sketch.quantiles(LEVELS, grid=GRID)[j], x[:, j]) for j in range(2)]
    assert max(worst) < 0.3 / GRID  # far below the bound on random rows
