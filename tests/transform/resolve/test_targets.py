"""Label, weight and passthrough against the columns there are."""

from __future__ import annotations

from typing import Any

import pytest

from transform import FeatureSpec
from transform.columns.types import SeenType
from transform.resolve.targets import check_targets, reserved_columns

TYPES: dict[str, SeenType] = {"x": "float", "n": "int", "word": "string"}


def _spec(**fields: Any) -> FeatureSpec:
    group = {"name": "g", "columns": "others", "scale": "none"}
    return FeatureSpec.model_validate({"groups": [group], **fields})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"label": {"column": "words", "kind": "multiclass"}}, "did you mean 'word'"),
        ({"label": {"column": "word", "kind": "binary"}}, "name the value that counts as 1"),
        ({"label": {"column": "x", "kind": "multiclass"}}, "use a column of type int or string"),
        ({"label": {"column": "word", "kind": "regression"}}, "use a column of type float or int"),
        ({"label": {"column": "n", "kind": "binary", "positive": "1"}}, "write it as a number"),
        ({"label": {"column": "word", "kind": "binary", "positive": 1}}, "write it in quotes"),
        ({"weight": "word"}, "weight 'word' is of type string; use a number"),
        ({"passthrough": "id"}, "features.passthrough='id' is not in the data"),
    ],
)
def test_what_cannot_be_a_target_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_targets(_spec(**fields), TYPES)


def test_no_pattern_takes_a_target() -> None:
    spec = _spec(
        label={"column": "n", "kind": "regression", "sources": ["tips"]},
        weight="x",
        passthrough="word",
    )
    assert reserved_columns(spec) == {"n", "tips", "x", "word"}
    check_targets(spec, {**TYPES, "tips": "float"})
