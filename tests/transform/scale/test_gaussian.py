"""Normal scores against NumPy and SciPy.

Reference: the definition, row by row, in float64; tolerance 1e-6. Ranks: test_contract.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

tf = pytest.importorskip("tensorflow")
from scipy.special import ndtri  # noqa: E402

from transform.block import QUANTILE_GRID  # noqa: E402
from transform.scale.table import _normal_scores  # noqa: E402
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


def test_neither_outliers_nor_unseen_values_leave_the_ends(analyze: Any) -> None:
    x = np.concatenate([np.random.default_rng(0).normal(size=2000), [1e38, -1e38, np.inf, np.nan]])
    found = _scored(analyze, x, 3)
    end = float(ndtri(1 - 0.5 / QUANTILE_GRID))
    assert np.isfinite(found).all()
    assert found.max() == pytest.approx(end, rel=1e-6)
    assert found.min() == pytest.approx(-end, rel=1e-6)
    np.testing.assert_allclose(found[-2:], 0.0, atol=0.01)  # median
