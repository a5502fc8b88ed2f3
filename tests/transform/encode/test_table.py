"""Encoders of one kind applied once, and crosses by strings joined in Python; exactly."""

from __future__ import annotations

import itertools

import pytest

tf = pytest.importorskip("tensorflow")

from transform.block import Block  # noqa: E402
from transform.columns.inputs import DenseColumns  # noqa: E402
from transform.encode.encoder import Inputs  # noqa: E402
from transform.encode.ids import _hash_ids  # noqa: E402
from transform.encode.table import _SEPARATOR, cross_texts, crossed, encoded  # noqa: E402
from transform.spec.features import Cross  # noqa: E402
from transform.spec.group import Group, ResolvedGroup  # noqa: E402

TYPES = {"word": "string", "text": "string", "hour": "int", "fare": "float"}
CROSS = Cross.model_validate(
    {"name": "all", "columns": ["word", "hour", "fare"], "encode": {"hash": {"buckets": 1000}}}
)
WORDS, HOURS, BUCKETS = ["a", "", "b"], [7, 8, 9], [[2], [1], [0]]


def test_a_cross_is_the_hash_of_the_joined_texts() -> None:
    columns = {"word": tf.constant(WORDS), "hour": tf.constant(HOURS)}
    texts = cross_texts([CROSS], TYPES)
    assert texts == ["word", "hour"]
    missing = tf.constant([[False], [False], [True]])
    buckets = Block(("fare",), tf.constant(BUCKETS, tf.int64), ("fare",), missing, (None,))
    inputs = Inputs(DenseColumns(columns, numbers=[], texts=texts), columns, TYPES, {})
    (block,) = crossed([CROSS], inputs, [buckets])
    joined = _SEPARATOR.join(["a", "7", "2"])
    first = _hash_ids(tf.constant([joined]), 1000).numpy()[0]  # type: ignore[arg-type]
    assert block.values.numpy().tolist() == [[first], [1000], [1000]]
    assert block.missing.numpy().tolist() == [[False], [True], [True]]
    assert block.sources == ("word x hour x fare",)
    assert [size and size.total for size in block.sizes] == [1001]


def test_different_pairs_are_different_texts() -> None:
    """Reference: Python's tuples. Texts of a, U+001E and U+001F, and bytes that are no UTF-8."""
    parts = ["".join(p) for n in (1, 2, 3) for p in itertools.product("a\x1e\x1f1", repeat=n)]
    pairs = [*itertools.product([*map(str.encode, parts), b"\xff\x1f", b"\xff"], repeat=2)]
    left, right = zip(*pairs, strict=True)
    columns = {"word": tf.constant(left), "text": tf.constant(right)}
    inputs = Inputs(DenseColumns(columns, numbers=[], texts=list(columns)), columns, TYPES, {})
    spec = {"name": "p", "columns": list(columns), "encode": {"hash": {"buckets": 2**62}}}
    (block,) = crossed([Cross.model_validate(spec)], inputs, [])
    assert len(set(block.values.numpy()[:, 0].tolist())) == len(pairs)


def test_texts_without_the_separator_keep_their_ids() -> None:
    """They are the hash of the texts as they are, joined: the ids of models in use."""
    columns = {"word": tf.constant(["a\\b", "æ 0"]), "hour": tf.constant([7, 8])}
    inputs = Inputs(DenseColumns(columns, numbers=[], texts=list(columns)), columns, TYPES, {})
    spec = {"name": "p", "columns": list(columns), "encode": {"hash": {"buckets": 1000}}}
    (block,) = crossed([Cross.model_validate(spec)], inputs, [])
    joined = tf.constant(["a\\b" + _SEPARATOR + "7", "æ 0" + _SEPARATOR + "8"])
    assert block.values.numpy()[:, 0].tolist() == _hash_ids(joined, 1000).numpy().tolist()  # type: ignore[arg-type]


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
