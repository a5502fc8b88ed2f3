"""Types of columns as a TFDV schema says them, and as a message does."""

from __future__ import annotations

from tensorflow_metadata.proto.v0 import schema_pb2

from transform.spec.common import Multivalued, column_types


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
