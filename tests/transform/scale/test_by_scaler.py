"""What columns of several scalers share, and what each is given; without Beam."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from transform.columns.inputs import DenseColumns  # noqa: E402
from transform.columns.numbers import _wanted_of, scaled  # noqa: E402
from transform.scale.table import SCALERS  # noqa: E402
from transform.spec.group import Group, ResolvedGroup  # noqa: E402

ROWS = 30
RNG = np.random.default_rng(8)
# Interleaved, so that no scaler's columns stand side by side.
KINDS: list[Any] = [
    *("robust", "z_score", {"z_score": {"by": "key"}}, "gaussian", "none", "min_max", "log1p"),
    *("gaussian", "robust", "none", {"z_score": {"by": "key"}}, "z_score", "log1p", "min_max"),
]
NAMES = [f"c{i}" for i in range(len(KINDS))]
COLUMNS: dict[str, Any] = {
    name: np.where(RNG.random(ROWS) < 0.2, np.nan, RNG.normal(i, 3.0, ROWS))
    for i, name in enumerate(NAMES)
}
KEYS = RNG.choice(["a", "b"], ROWS)


def _group(name: str, scale: Any, **more: Any) -> ResolvedGroup:
    group = Group.model_validate({"name": name, "columns": name, "scale": scale, **more})
    return ResolvedGroup(group, (name,))


def _scaled(analyze: Any, groups: list[ResolvedGroup], columns: Any = COLUMNS) -> np.ndarray:
    names = [each.columns[0] for each in groups]

    def function(rows: slice) -> Any:
        tensors: dict[str, Any] = {name: tf.constant(columns[name][rows]) for name in names}
        tensors["key"] = tf.constant(KEYS[rows].tolist())
        return scaled(groups, DenseColumns(tensors, numbers=names, texts=["key"]))[0].values

    return analyze(function, [slice(0, 11), slice(11, ROWS)], slice(0, ROWS)).numpy()


def test_two_scalers_by_quantiles_have_their_own(
    analyze: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A made-up one that is gaussian by another name."""
    monkeypatch.setitem(SCALERS, "none", dataclasses.replace(SCALERS["gaussian"], name="none"))
    kinds = ["none", "gaussian", "min_max", "none", "gaussian"]
    groups = [_group(n, kind, impute="mean") for n, kind in zip(NAMES, kinds, strict=False)]
    found = _scaled(analyze, groups)
    every = [_group(name, "gaussian", impute="mean") for name in NAMES[:5]]
    expected = _scaled(analyze, every)
    np.testing.assert_array_equal(found[:, [0, 1, 3, 4]], expected[:, [0, 1, 3, 4]])


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
    """`features explain` and the cautions ask for them; what no output rests on is not saved."""
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
