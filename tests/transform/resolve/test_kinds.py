"""Types that each group takes, and what is offered in their place."""

from __future__ import annotations

from typing import Any

import pytest

from transform.columns.types import Multivalued, SeenType
from transform.resolve.kinds import check_type, reads_texts, step_of, takes_lists
from transform.spec.group import Group

TAGS = Multivalued("string", "a column of up to 3 values per row", 3)
SCORES = Multivalued("float", "a column of up to 3 values per row", 3)


def _group(**options: Any) -> Group:
    return Group.model_validate({"name": "g", "columns": "x", **options})


def _encoded(**encode: Any) -> Group:
    return _group(encode=encode)


VOCABULARY, DATE = _encoded(vocabulary={}), _encoded(date={"parts": "hour"})
MULTI_HOT = _encoded(multi_hot={"top_k": 2})


@pytest.mark.parametrize(
    ("group", "seen", "message"),
    [
        (
            _group(scale="robust"),
            "string",
            "it: encode: vocabulary | hash | one_hot | date (ISO",
        ),
        (
            VOCABULARY,
            "float",
            "what fits it: scale: z_score | min_max | max_abs | robust | gaussian | power",
        ),
        (VOCABULARY, "float", "encode: integer (where every value is whole) | bucketize"),
        (DATE, "float", "encode: date takes string or int"),
        (VOCABULARY, TAGS, "what fits it: encode: multi_hot, or one value per row"),
        (VOCABULARY, SCORES, "what fits it: length: n with a scale"),
        (_group(scale="none", length=2), TAGS, "length: 2 takes lists of numbers"),
        (_group(scale="none", length=2), SCORES, "use length: 3 if all rows have as many"),
        (_group(scale="none"), "a column of dtype complex64", "fits it: one value per row; derive"),
    ],
)
def test_a_type_that_a_group_cannot_take_is_refused(
    group: Group, seen: SeenType, message: str
) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 (compared below)
        check_type(group, "x", seen)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("group", "seen"),
    [
        (_group(scale="robust"), "int"),
        (VOCABULARY, "int"),
        (DATE, "string"),
        (MULTI_HOT, TAGS),
        (MULTI_HOT, "string"),
        (_group(scale="none", length=3), SCORES),
    ],
)
def test_a_type_that_it_takes_passes(group: Group, seen: SeenType) -> None:
    check_type(group, "x", seen)


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
