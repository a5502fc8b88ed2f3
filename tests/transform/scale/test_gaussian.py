"""Normal scores against NumPy and SciPy.

Reference: the definition, row by row, in float64; tolerance 1e-6. The sketch's part, that a level
is off by 0.1 % of the rows at most (plus one row), is compared through the score's rank.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

tf = pytest.importorskip("tensorflow")
from scipy.special import ndtr, ndtri  # noqa: E402

from transform.block import QUANTILE_GRID  # noqa: E402
from transform.scale.ranks import _normal_scores  # noqa: E402
from transform.spec.group import Group  # noqa: E402


def _by_definition(x: float, q: np.ndarray) -> float:
    """Middle of the levels that x has, or the level between its neighbours."""
    last = len(q) - 1
    (equal,) = np.nonzero(q == x)
    level = equal.mean() / last if equal.size else np.interp(x, q, np.arange(last + 1)) / last
    return float(ndtri(np.clip(level, 0.5 / last, 1 - 0.5 / last)))


FINITE = st.floats(-1e30, 1e30, allow_subnormal=False)


@settings(max_examples=80)
@given(
    st.lists(FINITE | st.sampled_from([0.0, 1.0]), min_size=3, max_size=12),
    st.lists(FINITE | st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=12),
)
def test_scores_are_those_of_the_definition(knots: list[float], values: list[float]) -> None:
    q = np.sort(np.asarray(knots))
    x = np.asarray([*values, *knots])
    found = _normal_scores(tf.constant(x[:, np.newaxis]), tf.constant(q[np.newaxis])).numpy()[:, 0]
    expected = [_by_definition(v, q) for v in x]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    order = np.argsort(x)
    assert (np.diff(found[order]) >= -1e-12).all()


COLUMNS = {
    "normal": lambda rng, n: rng.normal(3.0, 2.0, n),
    "lognormal": lambda rng, n: rng.lognormal(sigma=5.0, size=n),
    "cauchy": lambda rng, n: rng.standard_cauchy(n),
    "offset": lambda rng, n: 1e9 + rng.normal(size=n),
    "zero_inflated": lambda rng, n: np.where(rng.random(n) < 0.8, 0.0, rng.exponential(5.0, n)),
    "two_values": lambda rng, n: (rng.random(n) < 0.3).astype(float),
}


def _scored(analyze: Any, x: np.ndarray, shards: int, **chain: Any) -> np.ndarray:
    from transform.columns.inputs import DenseColumns
    from transform.columns.numbers import scaled
    from transform.spec.group import ResolvedGroup

    group = Group.model_validate({"name": "g", "columns": "x", "scale": "gaussian", **chain})

    def function(values: np.ndarray) -> Any:
        columns = DenseColumns({"x": tf.constant(values)}, numbers=["x"], texts=[])
        (block,) = scaled([ResolvedGroup(group, ("x",))], columns)
        return block.values.numpy()[:, 0]

    return analyze(function, np.array_split(x, shards), x)


def test_scores_have_the_rank_of_the_value(analyze: Any) -> None:
    for name in list(COLUMNS):
        for shards in [1, 50]:
            rng = np.random.default_rng(9)
            n = 4000
            x = COLUMNS[name](rng, n)
            x[rng.random(n) < 0.1] = np.nan
            found = _scored(analyze, x, shards)
            present = np.sort(x[~np.isnan(x)])
            below = np.searchsorted(present, x, side="left") / present.size
            up_to = np.searchsorted(present, x, side="right") / present.size
            level = ndtr(found.astype(np.float64))
            # Two quantiles around the value, each off by the sketch's error; half a step at the e
            tolerance = 2.0 / QUANTILE_GRID + 1.0 / present.size
            middle = (below + up_to) / 2  # of the levels of equal values
            present_rows = ~np.isnan(x)
            np.testing.assert_allclose(level[present_rows], middle[present_rows], atol=tolerance)
            if name in ("normal", "lognormal", "cauchy", "offset"):
                np.testing.assert_allclose(level[~present_rows], 0.5, atol=tolerance)  # median
                scores = found[present_rows].astype(np.float64)
                assert abs(scores.mean()) < 0.01
                assert abs(scores.std() - 1.0) < 0.02


def test_neither_outliers_nor_unseen_values_leave_the_ends(analyze: Any) -> None:
    x = np.concatenate([np.random.default_rng(0).normal(size=2000), [1e38, -1e38, np.inf, np.nan]])
    found = _scored(analyze, x, 3)
    end = float(ndtri(1 - 0.5 / QUANTILE_GRID))
    assert np.isfinite(found).all()
    assert found.max() == pytest.approx(end, rel=1e-6)
    assert found.min() == pytest.approx(-end, rel=1e-6)
    np.testing.assert_allclose(found[-2:], 0.0, atol=0.01)  # median


def test_clipped_tails_share_the_middle_of_their_levels(analyze: Any) -> None:
    x = np.random.default_rng(1).normal(size=5000)
    found = _scored(analyze, x, 2, clip={"quantiles": [0.1, 0.9]})
    assert found.max() == pytest.approx(ndtri(0.95), abs=0.02)
    assert found.min() == pytest.approx(ndtri(0.05), abs=0.02)
    assert np.mean(found == found.max()) == pytest.approx(0.1, abs=0.003)
