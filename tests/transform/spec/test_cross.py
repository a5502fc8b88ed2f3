"""A cross without data."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from transform.spec.cross import Cross


def _cross(**options: Any) -> Cross:
    return Cross.model_validate(
        {"name": "c", "columns": ["a", "b"], "encode": "vocabulary", **options}
    )


def test_it_is_named_by_its_columns() -> None:
    assert _cross(columns=["a", "b", "c"]).source == "a x b x c"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": "a"}, r"cross 'c': columns=\['a'\]; give two or more different"),
        ({"columns": ["a", "b", "a"]}, "give two or more different columns"),
        ({"encode": {"integer": {"size": 2}}}, "encode: integer takes no combination of values"),
        ({"share": True}, "share\n  Extra inputs are not permitted"),
    ],
)
def test_what_cannot_cross_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        _cross(**options)
