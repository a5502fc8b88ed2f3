"""Listed vocabularies, which learn nothing, by a rule in Python; learned ones: test_encoders.py.

Ids that are the values themselves, by a rule in Python; exactly.

Given boundaries, against np.digitize: nothing is learned.

Hashed ids: TensorFlow's own hash of each text, folded; exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from transform.columns.inputs import DenseColumns  # noqa: E402
from transform.encode.encoder import Inputs  # noqa: E402
from transform.encode.ids import VOCABULARY, _hash_ids  # noqa: E402
from transform.encode.table import encoded  # noqa: E402
from transform.spec.encoders import Vocabulary  # noqa: E402
from transform.spec.group import Group, ResolvedGroup  # noqa: E402


def test_listed_values_have_their_place_then_oov_then_missing(block_of: Any) -> None:
    option = {"vocabulary": {"values": ["Oslo", "Bergen"], "oov_buckets": 3}}
    block = block_of(option, {"town": tf.constant(["Bergen", "Oslo", "", "Rome", "oslo"])})
    known, oslo, missing, rome, small = block.values[:, 0].numpy().tolist()
    assert (known, oslo, missing) == (1, 0, 5)
    assert {rome, small} <= {2, 3, 4}
    assert block.sizes[0].total == 6


def test_a_cross_of_listed_values() -> None:
    assert VOCABULARY.of_texts is not None
    option = Vocabulary(values=("a\x1f1", "b\x1f2"))
    ids, size = VOCABULARY.of_texts(tf.constant(["b\x1f2", "a\x1f1", "a\x1f2", ""]), option, "")
    assert (ids.numpy().tolist(), size.total) == ([1, 0, 2, 3], 4)


NAN = float("nan")


def test_each_value_has_its_id(block_of: Any) -> None:
    """Out of range is `size`, missing `size + 1`; what int64 cannot hold is out of range."""
    values = [0.0, 4.0, 5.0, -1.0, NAN, 1e300, float("inf"), -0.0]
    block = block_of({"integer": {"size": 5}}, {"x": tf.constant(values, tf.float64)})
    assert block.values[:, 0].numpy().tolist() == [0, 4, 5, 5, 6, 5, 6, 0]
    assert block.sizes[0].total == 7
    assert block.missing[:, 0].numpy().tolist() == [False] * 4 + [True, False, True, False]


def test_a_fraction_is_refused_by_name(block_of: Any) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"no whole number in column x: 0\.5"):
        block_of({"integer": {"size": 5}}, {"x": tf.constant([1.0, 0.5])})


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


TEXTS = ["a", "", "b", "grün", "a"]


def test_every_column_is_folded_to_its_own_buckets(block_of: Any) -> None:
    """Reference: FarmHash64 below 2^63, which `to_hash_bucket_fast` is, modulo the buckets."""
    wide = tf.strings.to_hash_bucket_fast(TEXTS, np.iinfo(np.int64).max).numpy()
    found = _hash_ids(tf.constant([TEXTS, TEXTS]), np.asarray([[3], [1000]])).numpy()
    for row, buckets in zip(found, (3, 1000), strict=True):
        expected = [
            buckets if not text else h % buckets for text, h in zip(TEXTS, wide, strict=True)
        ]
        assert row.tolist() == expected
    block = block_of({"hash": {"buckets": 3}}, {"x": tf.constant(TEXTS)})
    assert block.values[:, 0].numpy().tolist() == found[0].tolist()
    assert block.missing[:, 0].numpy().tolist() == [False, True, False, False, False]
    assert block.sizes[0].total == 4


def test_ints_are_hashed_as_their_text(block_of: Any) -> None:
    option = {"hash": {"buckets": 50}}
    ints, texts = (block_of(option, {"x": tf.constant(x)}) for x in ([7, -3], ["7", "-3"]))
    assert ints.values.numpy().tolist() == texts.values.numpy().tolist()
