"""Known texts, and the names of vocabulary files, by rules in Python; exactly."""

from __future__ import annotations

import pytest

tf = pytest.importorskip("tensorflow")

from transform.encode.lookup import LABEL_VOCABULARY, listed_ids, vocabulary_names  # noqa: E402


def test_a_text_has_the_place_of_its_equal() -> None:
    values = [f"value {i}" for i in range(1000)]
    texts = ["value 999", "value 0", "value 500", "value", "", "value 0 "]
    ids = listed_ids(tf.constant(texts), values, oov_buckets=2).numpy().tolist()
    assert ids[:3] == [999, 0, 500]
    assert all(id in (1000, 1001) for id in ids[3:])


def test_each_column_has_its_own_file() -> None:
    """Also on a file system that ignores case."""
    long = "n" * 300
    files = vocabulary_names(["a b", "a_b", "A_B", "größe", LABEL_VOCABULARY, long, long + "x"])
    assert files["a b"] == "a_b"
    assert len({file.lower() for file in files.values()}) == len(files)
    assert all(file.isascii() and len(file) < 110 for file in files.values())
    assert files[LABEL_VOCABULARY] != LABEL_VOCABULARY
