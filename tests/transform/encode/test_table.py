"""Encoders of one kind are applied once, whatever the groups; exactly."""

from __future__ import annotations

import pytest

tf = pytest.importorskip("tensorflow")

from transform.columns.inputs import DenseColumns  # noqa: E402
from transform.encode.encoder import Inputs  # noqa: E402
from transform.encode.table import encoded  # noqa: E402
from transform.spec.group import Group, ResolvedGroup  # noqa: E402


def _group(name: str, **options: object) -> ResolvedGroup:
    return ResolvedGroup(Group.model_validate({"name": name, "columns": name, **options}), (name,))


def test_groups_of_one_encoder_become_one_block() -> None:
    columns = {name: tf.constant([1, 0]) for name in ("a", "b", "c", "d")}
    groups = [
        _group("a", encode={"integer": {"size": 2}}),
        _group("b", encode={"hash": {"buckets": 4}}),
        _group("c", encode={"integer": {"size": 1}}),
        _group("d", scale="none"),
    ]
    dense = DenseColumns(columns, numbers=["a", "c"], texts=["b"])
    blocks = encoded(groups, Inputs(dense, columns, {}, {}))
    assert [block.names for block in blocks] == [("a", "c"), ("b",)]
    assert blocks[0].values.numpy().tolist() == [[1, 1], [0, 0]]
