"""Options of the encoders: what they count, and what contradicts itself."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from transform.spec.encoders import Bucketize, Encode, OneHot, Text, Vocabulary


def test_exactly_one_encoder_and_its_options() -> None:
    encode = Encode.model_validate("vocabulary")
    assert (encode.kind, encode.option) == ("vocabulary", Vocabulary())
    assert Encode.model_validate({"vocabulary": None}) == encode
    with pytest.raises(ValidationError, match=r"names \['hash', 'integer'\]|give exactly one of"):
        Encode.model_validate({"hash": {"buckets": 2}, "integer": {"size": 2}})
    with pytest.raises(ValidationError, match="no encoder; give exactly one of vocabulary, int"):
        Encode.model_validate({})


@pytest.mark.parametrize(
    ("options", "count"), [({"buckets": 7}, 7), ({"boundaries": [0.0, 1.0]}, 3)]
)
def test_buckets_are_one_more_than_boundaries(options: dict[str, Any], count: int) -> None:
    assert Bucketize.model_validate(options).count == count


def test_ints_may_be_listed_and_bools_not() -> None:
    assert OneHot.model_validate({"values": [1, "a"]}).values == ("1", "a")
    with pytest.raises(ValidationError, match="valid string"):
        OneHot.model_validate({"values": [True]})
    with pytest.raises(ValidationError, match="holds '1' twice"):
        OneHot.model_validate({"values": [1, "1"]})


def test_listed_and_learned_values_do_not_go_together() -> None:
    with pytest.raises(ValidationError, match="has values and min_count=2"):
        Vocabulary.model_validate({"values": ["a"], "min_count": 2})


def test_text_has_defaults_and_bounds() -> None:
    encode = Encode.model_validate("text")
    assert (encode.kind, encode.option) == ("text", Text())
    assert Encode.model_validate({"text": None}) == encode
    for field, value in [("top_k", 0), ("ngrams", 4), ("max_terms", 0), ("min_count", 0)]:
        with pytest.raises(ValidationError, match=rf"text\.{field}\n.*(greater|less) than"):
            Encode.model_validate({"text": {field: value}})


@pytest.mark.parametrize("name", ["vocabulary", "text"])
def test_the_json_schema_takes_a_name_alone(name: str) -> None:
    """As what it stands for; reference: the validator of jsonschema."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = Encode.model_json_schema()
    for good in (name, {name: None}, {name: {}}, {name: {"top_k": 3}}):
        jsonschema.validate(good, schema)
        assert Encode.model_validate(good).kind == name
    for bad in ("hash", {name: {"top_j": 3}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, schema)
