"""Names, patterns, and models without unknown keys.

Types of columns as a TFDV schema says them, and as a message does.
"""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from tensorflow_metadata.proto.v0 import schema_pb2

from transform.spec.common import (
    Model,
    Multivalued,
    Names,
    column_types,
    is_glob,
)


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


def _schema() -> schema_pb2.Schema:
    schema = schema_pb2.Schema()
    for name, kind in (("f", "FLOAT"), ("i", "INT"), ("s", "BYTES"), ("other", "STRUCT")):
        schema.feature.add(name=name, type=schema_pb2.FeatureType.Value(kind))
    schema.feature.add(name="list", type=schema_pb2.INT).value_count.max = 4
    matrix = schema.feature.add(name="matrix", type=schema_pb2.FLOAT)
    matrix.shape.dim.add(size=2)
    matrix.shape.dim.add(size=3)
    one = schema.feature.add(name="one", type=schema_pb2.FLOAT)
    one.shape.dim.add(size=1)
    return schema


def test_types_and_several_values_are_read_from_a_schema() -> None:
    types = column_types(_schema())
    assert [types[name] for name in ("f", "i", "s", "one")] == ["float", "int", "string", "float"]
    assert types["list"] == Multivalued("int", "a column of up to 4 values per row", 4)
    assert types["matrix"] == Multivalued("float", "a column of up to 6 values per row", 6)
    assert types["other"] == "a column that is neither float, int nor string"
