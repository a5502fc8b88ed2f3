"""What columns of several scalers share, and what each is given; without Beam."""

from __future__ import annotations

from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")

from transform.columns.inputs import DenseColumns  # noqa: E402
from transform.columns.numbers import _wanted_of, scaled  # noqa: E402
from transform.spec.group import Group, ResolvedGroup  # noqa: E402


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
