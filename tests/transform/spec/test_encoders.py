"""Options of the encoders: what they count, and their JSON schema; refusals: test_features.py."""

from __future__ import annotations

import pytest

from transform.spec.encoders import Bucketize, Encode, OneHot, Text, Vocabulary


def test_a_name_alone_has_the_defaults() -> None:
    for name, option in (("vocabulary", Vocabulary()), ("text", Text())):
        encode = Encode.model_validate(name)
        assert (encode.kind, encode.option) == (name, option)
        assert Encode.model_validate({name: None}) == encode
    assert Bucketize.model_validate({"buckets": 7}).count == 7
    assert Bucketize.model_validate({"boundaries": [0.0, 1.0]}).count == 3
    assert OneHot.model_validate({"values": [1, "a"]}).values == ("1", "a")


def test_the_json_schema_takes_a_name_alone() -> None:
    """As what it stands for; reference: the validator of jsonschema."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = Encode.model_json_schema()
    for name in ("vocabulary", "text"):
        for good in (name, {name: None}, {name: {}}, {name: {"top_k": 3}}):
            jsonschema.validate(good, schema)
            assert Encode.model_validate(good).kind == name
        for bad in ("hash", {name: {"top_j": 3}}):
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(bad, schema)
