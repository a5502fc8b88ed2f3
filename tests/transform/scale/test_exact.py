"""Scalers and every filling of the spec on hard columns, over 1, 2 and 50 shards.

Reference: NumPy in float64 (`np.longdouble` where it sums) on the values that float64 holds.
Tolerance: 1e-6 relative, and 1e-6 of the output's unit near 0 (outputs are float32). Where the
result rests on quantiles, these are first compared with NumPy's sort: a value of the column, of a
rank that is off by at most 0.1 % of the rows, plus one row.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

tf = pytest.importorskip("tensorflow")
from scipy.special import ndtri  # noqa: E402

from transform.analyzers.moments import column_statistics  # noqa: E402
from transform.analyzers.quantiles import order_statistics  # noqa: E402
from transform.block import QUANTILE_GRID  # noqa: E402
from transform.columns.inputs import DenseColumns  # noqa: E402
from transform.columns.numbers import _fill_values, _wanted_of, clip, scaled  # noqa: E402
from transform.spec.group import Group, ResolvedGroup, _Filling  # noqa: E402

SHARDS = (1, 2, 50)
COLUMNS = {
    "constant": lambda rng, n: np.full(n, 0.1),
    "huge_offset": lambda rng, n: 1e9 + rng.integers(-1, 2, n),
    "denormal": lambda rng, n: rng.integers(-3, 4, n) * 1e-44,  # float32; TensorFlow reads 0
    "small": lambda rng, n: rng.normal(0.0, 1e-30, n),
    "missing": lambda rng, n: np.full(n, np.nan),
    "heavy_tails": lambda rng, n: rng.standard_cauchy(n) ** 3,
    "skewed": lambda rng, n: rng.lognormal(sigma=5.0, size=n),
    "int64": lambda rng, n: 2**60 + rng.integers(0, 10**6, n) * 2**10,
    "int64_ends": lambda rng, n: rng.choice([-(2**63), 2**63 - 1, 0], n),
    "few": lambda rng, n: rng.choice([-2.0, 0.5, 7.0], n),
}
INTS = frozenset({"int64", "int64_ends"})
CHAINS: dict[str, dict[str, Any]] = {
    f"{scale}, {impute}": {"scale": scale, "impute": impute}
    for scale, impute in itertools.product(
        ["z_score", "min_max", "max_abs", "robust", "gaussian", "log1p", "asinh", "none"],
        [*get_args(_Filling), {"constant": 2.0}],
    )
}
CHAINS |= {
    "z_score, clipped": {"scale": "z_score", "clip": {"min": -1.0, "max": 3.0}},
    "min_max, clipped": {"scale": "min_max", "clip": {"quantiles": [0.1, 0.8]}},
    "max_abs, clipped": {"scale": "max_abs", "clip": {"quantiles": [0.1, 0.8]}},
    "robust, clipped": {"scale": "robust", "clip": {"quantiles": [0.05, 0.95]}},
    "log1p, clipped": {"scale": "log1p", "clip": {"quantiles": [0, 0.9]}},
    "none, constant": {
        "scale": "none",
        "impute": {"constant": -7.0},
        "clip": {"quantiles": [0.1, 0.9]},
    },
    "robust, bounded": {"scale": "robust", "clip": {"min": -1.0, "max": 3.0}},
    "gaussian, clipped": {"scale": "gaussian", "clip": {"quantiles": [0.05, 0.95]}},
    "none, clipped": {
        "scale": "none",
        "clip": {"quantiles": [0.05, 0.95]},
        "impute": "most_frequent",
    },
}
GROUPS = [
    Group.model_validate({"name": name, "columns": f"c{i}", **chain})
    for i, (name, chain) in enumerate(CHAINS.items())
]
NAMES = [f"c{i}" for i in range(len(GROUPS))]


def _column(kind: str, seed: int, rows: int, holes: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = COLUMNS[kind](rng, rows)
    if kind in INTS:
        return np.asarray(values, np.int64)
    hole = rng.random(rows) < holes
    return np.where(hole, rng.choice([np.nan, np.inf, -np.inf], rows), values).astype(np.float32)


def _all_chains(raw: np.ndarray) -> Any:
    """Every chain on the same column, and the quantiles that they rest on."""
    columns = DenseColumns(
        {name: tf.constant(raw) for name in NAMES}, numbers=NAMES, texts=[]
    )  # fmt: skip
    resolved = [
        ResolvedGroup(group, (name,)) for group, name in zip(GROUPS, NAMES, strict=True)
    ]  # fmt: skip
    (block,) = scaled(resolved, columns)
    x = clip(columns.numbers(NAMES), [group.clip for group in GROUPS])
    order = order_statistics(x, [_wanted_of(group) for group in GROUPS])
    filling = _fill_values(x, GROUPS, column_statistics(x), order.statistics)
    return block.values.numpy(), order, filling.numpy()


def _present(raw: np.ndarray) -> np.ndarray:
    """As float64, NaN where missing; a denormal float32 is 0."""
    x = raw.astype(np.float64)
    x = np.where(np.isfinite(x), x, np.nan)
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, 0.0, x)


def _assert_rank(found: float, present: np.ndarray, level: float) -> None:
    tolerance = 1.0 / QUANTILE_GRID + 1.0 / present.size
    assert found in present
    assert np.mean(present < found) - tolerance <= level <= np.mean(present <= found) + tolerance


def _mean(x: np.ndarray) -> float:
    return float(np.mean(x.astype(np.longdouble)))


def _expected(x: np.ndarray, group: Group, i: int, order: Any, filling: float) -> np.ndarray:
    """The chain in NumPy; `x` is clipped by absolute bounds."""
    low, high = order.statistics.low.numpy()[i], order.statistics.high.numpy()[i]
    x = np.clip(x, low, high)
    present = x[~np.isnan(x)]
    y = np.where(np.isnan(x), filling, x)
    if group.scale == "none":
        return y
    if group.scale == "log1p":
        return np.sign(y) * np.log1p(np.abs(y))
    if group.scale == "asinh":
        return np.arcsinh(y)
    if present.size == 0 or present.min() == present.max():
        return np.zeros_like(y)
    if group.scale == "max_abs":
        return y / np.abs(present).max()
    if group.scale == "z_score":
        exact = present.astype(np.longdouble)
        deviation = np.sqrt(np.mean((exact - exact.mean()) ** 2))
        return ((y - exact.mean()) / deviation).astype(np.float64)
    if group.scale == "min_max":
        return (y - present.min()) / (present.max() - present.min())
    if group.scale == "robust":
        found = order.statistics
        lower, median, upper = (
            float(q.numpy()[i]) for q in (found.lower_quartile, found.median, found.upper_quartile)
        )
        return (y - median) / (upper - lower if upper > lower else present.max() - present.min())
    row = [g for g, each in enumerate(GROUPS) if each.scale == "gaussian"].index(i)
    return _scores(y, order.quantiles.numpy()[row])


def _scores(y: np.ndarray, q: np.ndarray) -> np.ndarray:
    last = len(q) - 1
    levels = np.interp(y, q, np.arange(last + 1)) / last
    for k, value in enumerate(y):
        (equal,) = np.nonzero(q == value)
        levels[k] = equal.mean() / last if equal.size else levels[k]
    return ndtri(np.clip(levels, 0.5 / last, 1 - 0.5 / last))


@settings(max_examples=30)
@example(kind="int64", seed=160, rows=10, holes=0.0, shards=50)
@given(
    kind=st.sampled_from(sorted(COLUMNS)),
    seed=st.integers(0, 2**32 - 1),
    rows=st.sampled_from([1, 2, 3, 10, 199]),
    holes=st.sampled_from([0.0, 0.3]),
    shards=st.sampled_from(SHARDS),
)
def test_every_chain_equals_numpy(
    analyze: Any, kind: str, seed: int, rows: int, holes: float, shards: int
) -> None:
    raw = _column(kind, seed, rows, holes)
    parts = [part for part in np.array_split(raw, shards) if part.size]
    found, order, fillings = analyze(_all_chains, parts, raw)
    assert np.isfinite(found).all()
    whole = _present(raw)
    for i, group in enumerate(GROUPS):
        x = whole
        if group.clip is not None and not group.clips_by_quantiles:
            x = np.clip(x, group.clip.min, group.clip.max)
        present = x[~np.isnan(x)]
        filling = check_filling_contract(group, i, present, order, fillings[i])
        expected = _expected(x, group, i, order, filling)
        largest = np.finfo(np.float32).max
        expected = np.clip(expected, -largest, largest)
        np.testing.assert_allclose(
            found[:, i], expected, rtol=1e-6, atol=_unit(group, present), err_msg=f"{group} {kind}"
        )


def _unit(group: Group, present: np.ndarray) -> float:
    """1e-6 of an output of size 1; outputs in the column's own unit are as large as it is."""
    if group.scale == "none":
        return 1e-6 * float(np.abs(present).max(initial=0.0)) + 1e-37
    if group.scale == "z_score" and present.size and present.min() < present.max():
        # A mean near 2^60 is a multiple of 256 in float64: so much of a small deviation.
        largest = np.abs(present).max()
        return 1e-6 + 4.0 * float(np.spacing(largest) / np.std(present - present[0]))
    return 1e-6


def check_filling_contract(
    group: Group, i: int, present: np.ndarray, order: Any, filling: float
) -> float:
    """Return the imputed value by NumPy; a median after its rank was compared."""
    if present.size == 0:
        return group.filling if isinstance(group.filling, float) else 0.0
    low, high = order.statistics.low.numpy()[i], order.statistics.high.numpy()[i]
    if group.clips_by_quantiles:
        assert group.clip is not None
        assert group.clip.quantiles is not None
        _assert_rank(low, present, group.clip.quantiles[0])
        _assert_rank(high, present, group.clip.quantiles[1])
    if group.filling == "median":
        _assert_rank(filling, np.clip(present, low, high), 0.5)
        return filling
    if group.filling == "mean":
        return _mean(present)
    if group.filling == "most_frequent":
        counts = Counter(present.tolist())
        return float(np.clip(min(counts, key=lambda v: (-counts[v], v)), low, high))
    assert isinstance(group.filling, float)
    return group.filling
