"""Listed vocabularies, which learn nothing, by a rule in Python; learned ones: test_encoders.py.

Ids that are the values themselves, by a rule in Python; exactly.

Hashed ids: TensorFlow's own hash of each text, folded; exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from transform.encode.ids import VOCABULARY, _hash_ids  # noqa: E402
from transform.spec.encoders import Vocabulary  # noqa: E402


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
    option = {"hash": {"buckets": 50}}
    ints, texts = (block_of(option, {"x": tf.constant(x)}) for x in ([7, -3], ["7", "-3"]))
    assert ints.values.numpy().tolist() == texts.values.numpy().tolist()
