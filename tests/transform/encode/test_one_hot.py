"""What one_hot refuses; its columns: test_contract.py."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from tensorflow_metadata.proto.v0 import schema_pb2

from transform import FeatureSpec, check_spec


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "at least 1 item"),
        (["a", "a"], "holds 'a' twice"),
        ([1, "1"], "holds '1' twice"),
        (["a", ""], "the empty text, which is missing"),
        ([True], "valid string"),
    ],
)
def test_values_that_make_no_columns_are_refused(values: list[Any], message: str) -> None:
    group = {"name": "g", "columns": "a", "encode": {"one_hot": {"values": values}}}
    with pytest.raises(ValidationError, match=message):
        FeatureSpec.model_validate({"groups": [group]})


def test_a_name_that_another_column_has_is_refused() -> None:
    schema = schema_pb2.Schema()
    for name in ("a", "a=x"):
        schema.feature.add(name=name, type=schema_pb2.BYTES)
    hot = {"name": "hot", "columns": "a", "encode": {"one_hot": {"values": ["x"]}}}
    spec = {"groups": [hot, {"name": "w", "columns": "a=x", "encode": "vocabulary"}]}
    with pytest.raises(ValueError, match="'a=x' is made by one_hot of 'a' and in group 'w'"):
        check_spec(FeatureSpec.model_validate(spec), schema)


def test_a_float_is_refused() -> None:
    schema = schema_pb2.Schema()
    schema.feature.add(name="a", type=schema_pb2.FLOAT)
    group = {"name": "g", "columns": "a", "encode": {"one_hot": {"values": ["1"]}}}
    with pytest.raises(ValueError, match="encode: one_hot takes string or int"):
        check_spec(FeatureSpec.model_validate({"groups": [group]}), schema)
