"""Which columns each group takes: names, then globs, then types, then the others.

Types that each group takes, and what is offered in their place.

Label, weight and passthrough against the columns there are.
"""

from __future__ import annotations

from typing import Any

import pytest

from transform import FeatureSpec
from transform.resolve.select import (
    reads_texts,
    resolve,
    step_of,
    takes_lists,
)
from transform.spec.common import Multivalued, SeenType
from transform.spec.group import Group

SCALED = {"name": "money", "columns": ["fare"], "scale": "z_score"}
TYPES: dict[str, SeenType] = {
    **dict.fromkeys(("fare", "trip_miles", "tips"), "float"),
    **dict.fromkeys(("trip_seconds", "trip_start_hour", "tipped"), "int"),
    "company": "string",
    "tags": Multivalued("string", "a column of up to 5 values per row", 5),
    "weights": Multivalued("float", "a column of up to 5 values per row", 5),
}


def _crossed(*columns: str, encode: Any = None) -> dict[str, Any]:
    cross = {"name": "c", "columns": columns, "encode": encode or {"hash": {"buckets": 8}}}
    return {"groups": [SCALED], "crosses": [cross]}


def _groups(*groups: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"groups": list(groups), **fields}


def test_names_then_globs_then_dtype_then_others() -> None:
    spec = FeatureSpec.model_validate(
        _groups(
            {"name": "rest", "columns": "others", "exclude": ["tags", "weights"], "scale": "none"},
            {"name": "ints", "dtype": "int", "encode": {"integer": {"size": 24}}},
            {"name": "trips", "columns": "trip_*", "exclude": "*_hour", "scale": "min_max"},
            {"name": "words", "dtype": "string", "encode": "vocabulary"},
            label={"column": "tipped", "kind": "binary", "sources": ["tips"]},
        )
    )
    resolved = {r.group.name: r.columns for r in resolve(spec, TYPES)}
    assert resolved == {
        "rest": ("fare",),
        "ints": ("trip_start_hour",),
        "trips": ("trip_miles", "trip_seconds"),
        "words": ("company",),
    }


def _columns_of(spec: dict[str, Any], **types: str) -> dict[str, tuple[str, ...]]:
    return {r.group.name: r.columns for r in resolve(FeatureSpec.model_validate(spec), types)}


def test_exact_names_come_before_patterns() -> None:
    def of(*columns: str, exclude: str = "") -> tuple[str, ...]:
        group = {"name": "g", "columns": list(columns), "exclude": exclude, "scale": "none"}
        types = dict.fromkeys(("v0", "v1", "v[0]", "a*", "ab"), "float")
        return _columns_of(_groups(group), **types)["g"]

    assert of("v[0]") == ("v[0]",)
    assert of("v[1]") == ("v1",)  # no column has this name: a pattern
    assert of("v[[]0]") == ("v[0]",)
    assert of("a*") == ("a*",)
    assert of("a[*]") == ("a*",)
    assert of("v?", "a*") == ("v0", "v1", "a*")
    assert of("v*") == ("v0", "v1", "v[0]")
    assert of("v*", exclude="v[0]") == ("v0", "v1")
    with pytest.raises(ValueError, match=r"pattern 'v\[7\]' matches no column that is free"):
        of("v[7]")


def test_whole_floats_share_the_ids_of_ints() -> None:
    group = {"name": "g", "columns": ["n", "x"], "encode": {"integer": {"size": 9}}, "share": True}
    assert _columns_of(_groups(group), n="int", x="float")["g"] == ("n", "x")


def test_a_name_with_brackets_is_in_one_place_only() -> None:
    group = {"name": "g", "columns": ["v[0]"], "scale": "none"}
    types = {"v[0]": "float", "y": "float"}
    twice = _groups(group, {"name": "h", "columns": ["v[0]", "y"], "scale": "none"})
    with pytest.raises(ValueError, match=r"'v\[0\]' is in group 'g' and again in group 'h'"):
        _columns_of(twice, **types)
    label = _groups(group, label={"column": "v[0]", "kind": "regression"})
    with pytest.raises(ValueError, match=r"'v\[0\]' is a target or passed through, and also"):
        _columns_of(label, **types)
    crossed = _crossed("w[0]", "a?")
    assert _columns_of(crossed, **{"w[0]": "string", "a?": "string", "fare": "float"}) is not None
    with pytest.raises(ValueError, match=r"'a\?' is not in the data, and no pattern here; name"):
        _columns_of(crossed, **{"w[0]": "string", "ab": "string", "fare": "float"})


def test_a_column_that_is_named_as_a_cross_is_shown_is_refused() -> None:
    types = {"a": "string", "b": "string", "fare": "float"}
    with pytest.raises(ValueError, match=r"cross 'c' is shown as 'a x b', which is a column"):
        _columns_of(_crossed("a", "b"), **types, **{"a x b": "int"})


def _group(**options: Any) -> Group:
    return Group.model_validate({"name": "g", "columns": "x", **options})


def _encoded(**encode: Any) -> Group:
    return _group(encode=encode)


VOCABULARY, DATE = _encoded(vocabulary={}), _encoded(date={"parts": "hour"})
MULTI_HOT = _encoded(multi_hot={"top_k": 2})


def test_how_columns_are_read() -> None:
    groups = {"number": _group(scale="none"), "text": VOCABULARY, "date": DATE}
    assert {n: reads_texts(g, "int") for n, g in groups.items()} == {
        "number": False, "text": True, "date": False,
    }  # fmt: skip
    assert reads_texts(DATE, "string")
    assert [takes_lists(g) for g in (MULTI_HOT, _group(scale="none", length=2), DATE)] == [
        True, True, False,
    ]  # fmt: skip
    by_key = _group(scale={"z_score": {"by": "town"}})
    steps = [step_of(g) for g in (DATE, _group(scale="none"), by_key)]
    assert steps == ["encode: date", "scale: none", "scale: z_score by 'town'"]
