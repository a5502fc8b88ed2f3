"""What test_contract.py leaves: functions and their inverses, chains, what scalers require.

Reference: NumPy in float64; functions to 1e-15 relative. Normal scores: test_exact.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from transform.columns.inputs import DenseColumns  # noqa: E402
from transform.columns.numbers import _wanted_of, scaled  # noqa: E402
from transform.scale.table import FUNCTIONS, SCALERS  # noqa: E402
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


def test_a_given_value_and_bounds_are_in_the_columns_own_unit(analyze: Any) -> None:
    """Reference: NumPy, float64, to 1e-6; means and deviations alone: test_contract.py."""
    scale = ["log1p", "z_score"]
    options = [{"impute": {"constant": 2.5}}, {"clip": {"min": 0, "max": 50}}]
    found = _scaled(analyze, *({"scale": scale, **option} for option in options))
    for i, (x, filling) in enumerate(((X, 2.5), (np.clip(X, 0.0, 50.0), None))):
        y = NUMPY["log1p"](x)
        present = y[~np.isnan(y)]
        y = np.where(np.isnan(y), present.mean() if filling is None else np.log1p(filling), y)
        expected = (y - present.mean()) / present.std()
        np.testing.assert_allclose(found[:, i], expected, rtol=1e-6, atol=1e-6)


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


def _group(name: str, scale: Any, **more: Any) -> ResolvedGroup:
    group = Group.model_validate({"name": name, "columns": name, "scale": scale, **more})
    return ResolvedGroup(group, (name,))


def test_quantiles_are_learned_where_they_are_of_use() -> None:
    for options, wanted in [
        ({"scale": "z_score"}, (None, False, False)),
        ({"scale": "robust"}, (None, True, False)),
        ({"scale": "gaussian"}, (None, True, True)),
        ({"scale": "gaussian", "impute": "mean"}, (None, False, True)),
        ({"scale": "min_max", "clip": {"quantiles": [0, 0.9]}}, ((0.0, 0.9), True, False)),
        ({"scale": "none", "clip": {"max": 3}}, (None, False, False)),
    ]:
        group = Group.model_validate({"name": "g", "columns": "x", **options})
        assert tuple(_wanted_of(group)) == wanted


def test_statistics_are_kept_where_nothing_is_scaled_by_them() -> None:
    """The page and the cautions ask for them; what no output rests on is not saved."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float64, [None, 1])
        dense = DenseColumns({"x": x}, numbers=["x"], texts=[])
        (block,) = scaled([_group("x", "none")], dense)
        seen, stack = set(), [block.values.op]
        while stack:
            op = stack.pop()
            if op.name not in seen:
                seen.add(op.name)
                stack += [*(source.op for source in op.inputs), *op.control_inputs]
        kept = [op.name for op in graph.get_operations() if op.name.startswith("fitted/stat")]
        assert kept
        assert set(kept) <= seen
