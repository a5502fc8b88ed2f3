"""Known texts, and the names of vocabulary files, by rules in Python; exactly."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

tf = pytest.importorskip("tensorflow")

from transform.encode.lookup import (  # noqa: E402
    LABEL_VOCABULARY,
    _one_line,
    vocabulary_names,
)


def test_each_column_has_its_own_file() -> None:
    """Also on a file system that ignores case."""
    long = "n" * 300
    files = vocabulary_names(["a b", "a_b", "A_B", "größe", LABEL_VOCABULARY, long, long + "x"])
    assert files["a b"] == "a_b"
    assert len({file.lower() for file in files.values()}) == len(files)
    assert all(file.isascii() and len(file) < 110 for file in files.values())
    assert files[LABEL_VOCABULARY] != LABEL_VOCABULARY


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


@settings(max_examples=50)
@given(st.lists(st.text(st.sampled_from("\\\nnr\rü ")), min_size=1))
def test_texts_on_one_line_are_the_escape_of_python(texts: list[str]) -> None:
    found = [text.decode() for text in _one_line(tf.constant(texts)).numpy().tolist()]
    assert found == list(map(_escaped, texts))
    assert len(set(found)) == len(set(texts))
