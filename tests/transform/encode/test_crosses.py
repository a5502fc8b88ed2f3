"""Crosses of texts, ints and buckets, by strings joined in Python; exactly."""

from __future__ import annotations

import pytest

tf = pytest.importorskip("tensorflow")

from transform.block import Block  # noqa: E402
from transform.columns.inputs import DenseColumns  # noqa: E402
from transform.encode.crosses import SEPARATOR, cross, cross_texts, float_buckets  # noqa: E402
from transform.encode.encoder import Inputs  # noqa: E402
from transform.encode.hash import hash_ids  # noqa: E402
from transform.spec.cross import Cross  # noqa: E402

TYPES = {"word": "string", "hour": "int", "fare": "float"}
CROSS = Cross.model_validate(
    {"name": "all", "columns": list(TYPES), "encode": {"hash": {"buckets": 1000}}}
)
WORDS, HOURS, BUCKETS = ["a", "", "b"], [7, 8, 9], [[2], [1], [0]]


def test_a_cross_is_the_hash_of_the_joined_texts() -> None:
    columns = {"word": tf.constant(WORDS), "hour": tf.constant(HOURS)}
    texts = cross_texts([CROSS], TYPES)
    assert texts == ["word", "hour"]
    missing = tf.constant([[False], [False], [True]])
    buckets = Block(("fare",), tf.constant(BUCKETS, tf.int64), ("fare",), missing, (None,))
    inputs = Inputs(DenseColumns(columns, numbers=[], texts=texts), columns, {}, {})
    (block,) = cross(inputs, [CROSS], float_buckets([CROSS], TYPES, [buckets]))
    joined = SEPARATOR.join(["a", "7", "2"])
    first = hash_ids(tf.constant([joined]), 1000).numpy()[0]  # type: ignore[arg-type]
    assert block.values.numpy().tolist() == [[first], [1000], [1000]]
    assert block.missing.numpy().tolist() == [[False], [True], [True]]
    assert block.sources == ("word x hour x fare",)
    assert [size and size.total for size in block.sizes] == [1001]
