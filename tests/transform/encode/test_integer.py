"""Ids that are the values themselves, by a rule in Python; exactly."""

from __future__ import annotations

from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")

NAN = float("nan")


def test_each_value_has_its_id(block_of: Any) -> None:
    """Out of range is `size`, missing `size + 1`; what int64 cannot hold is out of range."""
    values = [0.0, 4.0, 5.0, -1.0, NAN, 1e300, float("inf"), -0.0]
    block = block_of({"integer": {"size": 5}}, {"x": tf.constant(values, tf.float64)})
    assert block.values[:, 0].numpy().tolist() == [0, 4, 5, 5, 6, 5, 6, 0]
    assert block.sizes[0].total == 7
    assert block.missing[:, 0].numpy().tolist() == [False] * 4 + [True, False, True, False]


def test_columns_of_one_group_are_encoded_at_once(block_of: Any) -> None:
    columns = {"a": tf.constant([1, 2]), "b": tf.constant([[2], [9]])}
    block = block_of({"integer": {"size": 3}}, columns)
    assert block.names == ("a", "b")
    assert block.values.numpy().tolist() == [[1, 2], [2, 3]]


def test_a_fraction_is_refused_by_name(block_of: Any) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"no whole number in column x: 0\.5"):
        block_of({"integer": {"size": 5}}, {"x": tf.constant([1.0, 0.5])})
