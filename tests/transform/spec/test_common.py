"""Names, patterns, and models without unknown keys."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from transform.spec.common import Model, Names, is_glob


class _Listed(Model):
    names: Names = ()


def test_a_word_stands_for_a_list_of_one() -> None:
    assert _Listed.model_validate({"names": "fare"}).names == ("fare",)
    assert _Listed.model_validate({"names": ["a", "b"]}).names == ("a", "b")


def test_unknown_keys_and_changes_are_refused() -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        _Listed.model_validate({"name": "fare"})
    listed = _Listed()
    with pytest.raises(ValidationError, match="frozen"):
        listed.names = ("a",)  # type: ignore[misc]


def test_what_selects_by_wildcard() -> None:
    assert [is_glob(each) for each in ("V*", "a?", "v[0]", "fare", "")] == [
        True, True, True, False, False,
    ]  # fmt: skip
