"""Chains, `[log1p, z_score]`, against NumPy; functions against NumPy, 1e-15 relative."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from transform.columns.inputs import DenseColumns  # noqa: E402
from transform.columns.numbers import scaled  # noqa: E402
from transform.scale.pointwise import FUNCTIONS  # noqa: E402
from transform.scale.table import SCALERS  # noqa: E402
from transform.spec.group import Group, ResolvedGroup  # noqa: E402

RNG = np.random.default_rng(6)
ROWS = 199
X = np.where(RNG.random(ROWS) < 0.2, np.nan, RNG.lognormal(3.0, 2.0, ROWS) - 5.0)
NUMPY = {"log1p": lambda x: np.sign(x) * np.log1p(np.abs(x)), "asinh": np.arcsinh}


def test_a_function_and_its_inverse() -> None:
    for name in sorted(FUNCTIONS):
        x = np.asarray([0.0, 1e-300, 1e-9, 0.5, 3.0, 2.0**27, 2.0**28 + 1, 1e200, 1.7e308])
        x = np.concatenate([x, -x])
        function = FUNCTIONS[name]
        found = function.apply(tf.constant(x)).numpy()
        np.testing.assert_allclose(found, NUMPY[name](x), rtol=1e-15)
        assert [function.value(each) for each in x] == pytest.approx(found.tolist(), rel=1e-15)
        back = [function.inverse(each) for each in found[:7]]
        np.testing.assert_allclose(back, x[:7], rtol=1e-13, atol=1e-15)
        assert np.isnan(function.apply(tf.constant([np.nan], tf.float64)).numpy()).all()


def _scaled(analyze: Any, *options: dict[str, Any]) -> np.ndarray:
    """Each option on a copy of the column, all in one analysis."""
    groups = [
        Group.model_validate({"name": f"g{i}", "columns": f"c{i}", **option})
        for i, option in enumerate(options)
    ]
    names = [f"c{i}" for i in range(len(options))]

    def function(rows: np.ndarray) -> tf.Tensor:
        dense = DenseColumns(
            {name: tf.constant(X[rows]) for name in names}, numbers=names, texts=[]
        )
        resolved = [ResolvedGroup(g, (n,)) for g, n in zip(groups, names, strict=True)]
        return scaled(resolved, dense)[0].values

    every = np.arange(ROWS)
    return analyze(function, np.array_split(every, 3), every).numpy()


def _expected(first: str, last: str, x: np.ndarray, filling: float | str) -> np.ndarray:
    f = NUMPY[first]
    y = f(x)
    present = y[~np.isnan(y)]
    if isinstance(filling, float):
        value = f(np.float64(filling))
    else:
        value = present.mean() if filling == "mean" else np.quantile(present, 0.5)
    y = np.where(np.isnan(y), value, y)
    if last == "z_score":
        return (y - present.mean()) / present.std()
    return (y - present.min()) / (present.max() - present.min())


def test_statistics_are_of_the_functions_values(analyze: Any) -> None:
    """Reference: NumPy, float64, to 1e-6; a constant is given in the column's own unit."""
    kinds = list(itertools.product(NUMPY, ("z_score", "min_max")))
    filling = 2.5
    impute = {"constant": filling}
    plain = {"scale": "z_score", "impute": impute}  # beside them, and no chain
    found = _scaled(analyze, *({"scale": list(k), "impute": impute} for k in kinds), plain)
    for i, (first, last) in enumerate(kinds):
        expected = _expected(first, last, X, filling)
        np.testing.assert_allclose(found[:, i], expected, rtol=1e-6, atol=1e-6)
    present = X[~np.isnan(X)]
    filled = np.where(np.isnan(X), filling, X)
    expected = (filled - present.mean()) / present.std()
    np.testing.assert_allclose(found[:, -1], expected, rtol=1e-6, atol=1e-6)


def test_bounds_are_in_the_columns_own_unit(analyze: Any) -> None:
    (found,) = _scaled(analyze, {"scale": ["log1p", "z_score"], "clip": {"min": 0, "max": 50}}).T
    expected = _expected("log1p", "z_score", np.clip(X, 0.0, 50.0), "mean")
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_ranks_are_those_of_the_column(analyze: Any) -> None:
    """Quartiles of f(x) are f of those of x: to the rank error of the sketch, here none."""
    option = {"scale": ["asinh", "robust"], "clip": {"quantiles": [0.1, 0.9]}}
    (found,) = _scaled(analyze, option).T
    present = np.sort(X[~np.isnan(X)])
    inside = found[~np.isnan(X)][np.argsort(X[~np.isnan(X)])]
    assert np.abs(np.median(inside)) < 0.05
    low, high = (inside[int(share * (len(present) - 1))] for share in (0.25, 0.75))
    assert high - low == pytest.approx(1.0, abs=0.05)


def test_a_chain_has_the_validation_rule_of_its_last_step() -> None:
    group = Group.model_validate({"name": "g", "columns": "x", "scale": ["log1p", "z_score"]})
    assert group.kind == "log1p+z_score"
    assert SCALERS[group.kind].validation_rule == SCALERS["z_score"].validation_rule
    assert Group.model_validate(group.model_dump(mode="json")) == group
    with pytest.raises(ValueError, match="z_score needs statistics of the clipped values"):
        Group.model_validate({**group.model_dump(), "clip": {"quantiles": [0.1, 0.9]}})
