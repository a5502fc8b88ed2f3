"""Hashed ids: TensorFlow's own hash of each text, folded; exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from transform.encode.hash import ENCODER, hash_ids  # noqa: E402
from transform.spec.encoders import Hash  # noqa: E402

TEXTS = ["a", "", "b", "grün", "a"]


def test_every_column_is_folded_to_its_own_buckets(block_of: Any) -> None:
    """Reference: FarmHash64 below 2^63, which `to_hash_bucket_fast` is, modulo the buckets."""
    wide = tf.strings.to_hash_bucket_fast(TEXTS, np.iinfo(np.int64).max).numpy()
    found = hash_ids(tf.constant([TEXTS, TEXTS]), np.asarray([[3], [1000]])).numpy()
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


def test_a_cross_is_hashed_by_the_same() -> None:
    assert ENCODER.of_texts is not None
    ids, size = ENCODER.of_texts(tf.constant(TEXTS), Hash(buckets=9), "")
    assert ids.numpy().tolist() == hash_ids(tf.constant(TEXTS), np.asarray(9)).numpy().tolist()
    assert size.total == 10
