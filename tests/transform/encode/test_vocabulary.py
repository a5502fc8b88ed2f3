"""Listed vocabularies, which learn nothing, by a rule in Python; learned ones: test_encoders.py."""

from __future__ import annotations

from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")

from transform.encode.encoder import Known  # noqa: E402
from transform.encode.vocabulary import ENCODER  # noqa: E402
from transform.spec.encoders import Vocabulary  # noqa: E402


def test_listed_values_have_their_place_then_oov_then_missing(block_of: Any) -> None:
    option = {"vocabulary": {"values": ["Oslo", "Bergen"], "oov_buckets": 3}}
    block = block_of(option, {"town": tf.constant(["Bergen", "Oslo", "", "Rome", "oslo"])})
    known, oslo, missing, rome, small = block.values[:, 0].numpy().tolist()
    assert (known, oslo, missing) == (1, 0, 5)
    assert {rome, small} <= {2, 3, 4}
    assert block.sizes[0].total == 6


def test_a_cross_of_listed_values() -> None:
    assert ENCODER.of_texts is not None
    option = Vocabulary(values=("a\x1f1", "b\x1f2"))
    ids, size = ENCODER.of_texts(tf.constant(["b\x1f2", "a\x1f1", "a\x1f2", ""]), option, "")
    assert (ids.numpy().tolist(), size.total) == ([1, 0, 2, 3], 4)


def test_what_a_domain_may_contradict() -> None:
    assert ENCODER.known(Vocabulary(top_k=7)) == Known(top_k=7)
    assert ENCODER.known(Vocabulary()) == Known()
