"""Given boundaries, against np.digitize: nothing is learned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from transform.columns.inputs import DenseColumns  # noqa: E402
from transform.columns.types import ResolvedGroup  # noqa: E402
from transform.encode.encoder import Inputs  # noqa: E402
from transform.encode.table import encoded  # noqa: E402
from transform.spec.group import Group  # noqa: E402


def _group(option: dict[str, Any]) -> Group:
    return Group.model_validate(
        {"name": "g", "columns": ["a", "b"], "encode": {"bucketize": option}}
    )


def test_given_boundaries_are_those_of_digitize() -> None:
    x = np.asarray([-1.0, 0.0, 17.9, 18.0, 64.0, 65.0, 1e9, np.nan])
    given = {"a": [0, 18, 65], "b": [-0.5]}
    columns = DenseColumns(
        {"a": tf.constant(x), "b": tf.constant(x[::-1].copy())}, numbers=["a", "b"], texts=[]
    )
    groups = [ResolvedGroup(_group({"boundaries": bounds}), (n,)) for n, bounds in given.items()]
    (block,) = encoded(groups, Inputs(columns, {}, {}, {}))
    for at, (values, bounds) in enumerate(zip((x, x[::-1]), given.values(), strict=True)):
        expected = np.where(np.isnan(values), len(bounds) + 1, np.digitize(values, bounds))
        np.testing.assert_array_equal(block.values[:, at], expected)
        size = block.sizes[at]
        assert size is not None
        assert size.total == len(bounds) + 2


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({}, "neither buckets nor boundaries; give exactly one"),
        ({"buckets": 3, "boundaries": [1]}, "both buckets and boundaries; give exactly one"),
        ({"boundaries": [1, 1]}, r"boundaries=\[1.0, 1.0\]; give different finite numbers, asc"),
        ({"boundaries": [2, 1]}, "ascending"),
        ({"boundaries": [float("inf")]}, "finite"),
        ({"boundaries": []}, "at least 1 item"),
    ],
)
def test_what_makes_no_buckets_is_refused(option: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _group(option)
