"""Texts on one line: as Python escapes them, one to one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

tf = pytest.importorskip("tensorflow")

from transform.encode.line_breaks import one_line  # noqa: E402


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


@settings(max_examples=50)
@given(st.lists(st.text(st.sampled_from("\\\nnr\rü ")), min_size=1))
def test_it_is_the_escape_of_python(texts: list[str]) -> None:
    found = [text.decode() for text in one_line(tf.constant(texts)).numpy().tolist()]
    assert found == list(map(_escaped, texts))
    assert len(set(found)) == len(set(texts))
