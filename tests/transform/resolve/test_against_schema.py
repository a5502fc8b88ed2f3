"""A spec against a TFDV schema and its domains: what does not fit is refused, and in which words.

Nothing here runs Beam.
"""

from __future__ import annotations

import re
import sys
import types
from typing import Any

import pytest
import yaml
from tensorflow_metadata.proto.v0 import schema_pb2

from transform import FeatureSpec, check_spec

FARE = {"name": "money", "columns": ["fare"], "scale": "z_score"}


def _schema(**columns: str) -> schema_pb2.Schema:
    kinds = {"float": schema_pb2.FLOAT, "int": schema_pb2.INT, "string": schema_pb2.BYTES}
    schema = schema_pb2.Schema()
    for name, kind in columns.items():
        schema.feature.add(name=name, type=kinds[kind])
    return schema


FLOATS, INTS = ("fare", "trip_miles", "tips"), ("trip_seconds", "trip_start_hour", "tipped")
TAXI = _schema(**dict.fromkeys(FLOATS, "float"), **dict.fromkeys(INTS, "int"), company="string")
TAXI.feature.add(name="tags", type=schema_pb2.BYTES).value_count.max = 5
TAXI.feature.add(name="weights", type=schema_pb2.FLOAT).value_count.max = 5


def _domains() -> schema_pb2.Schema:
    columns = {"payment": "string", "company": "string", "area": "int", "stop": "int"}
    schema = _schema(**columns, open="string")
    schema.feature[0].string_domain.value.extend(["Cash", "Card", "Dispute"])
    schema.string_domain.add(name="companies").value.extend(["a", "b"])
    schema.feature[1].domain = "companies"
    for feature, low, high in ((schema.feature[2], 1, 77), (schema.feature[3], 5, 99)):
        feature.int_domain.min, feature.int_domain.max = low, high
    schema.feature[4].string_domain.value.extend(["Cash"])
    schema.feature[4].distribution_constraints.min_domain_mass = 0.9
    return schema


def _lines(table: str) -> list[tuple[dict[str, Any], str]]:
    """The lines `fields as YAML -> words of the error`; one that is indented continues another."""
    lines = re.sub(r"\n +", " ", table.strip()).splitlines()
    parts = [line.partition(" -> ") for line in lines]
    return [(yaml.safe_load(f"{{{fields}}}"), words) for fields, _, words in parts]


def _check_refused(schema: schema_pb2.Schema, spec: dict[str, Any], words: str) -> None:
    found = "nothing refused"
    try:
        check_spec(FeatureSpec.model_validate(spec), schema)
    except ValueError as error:
        found = str(error)
    assert words in found, spec


def test_groups_that_do_not_fit_the_data_are_refused() -> None:
    for fields, words in _lines(_GROUPS):
        _check_refused(TAXI, {"groups": [{"name": "g", **fields}]}, words)


_GROUPS = """
columns: fair, scale: none -> group 'g': column 'fair' is not in the data; did you mean 'fare'?
columns: Trip_Miles, scale: none -> 'Trip_Miles' is not in the data; did you mean 'trip_miles'?
columns: zzz, scale: none
    -> the data has: company, fare, tags, tipped, tips, trip_miles, trip_seconds
columns: company, scale: z_score
    -> column 'company' is of type string, and scale: z_score takes float or int; what fits it:
    encode: vocabulary | hash | one_hot | date (ISO
columns: fare, encode: vocabulary
    -> column 'fare' is of type float, and encode: vocabulary takes string or int
columns: fare, encode: vocabulary
    -> what fits it: scale: z_score | min_max | max_abs | robust | gaussian | power
columns: fare, encode: vocabulary -> encode: integer (where every value is whole) | bucketize
columns: company, encode: {integer: {size: 3}}
    -> column 'company' is of type string, and encode: integer takes float or int
columns: fare, encode: {date: {parts: hour}}
    -> column 'fare' is of type float, and encode: date takes string or int
columns: weights, encode: {multi_hot: {top_k: 3}}
    -> up to 5 values per row (float), and encode: multi_hot takes string or int
columns: fare, scale: {z_score: {by: compny}}
    -> group 'g': scale.z_score.by='compny' is not in the data; did you mean 'company'?
columns: fare, scale: {z_score: {by: tips}}
    -> scale.z_score.by='tips' is of type float; use a string or int column
dtype: int, scale: {z_score: {by: tipped}}
    -> scale.z_score.by='tipped' is among the columns to scale
columns: company, scale: {z_score: {by: tipped}}
    -> column 'company' is of type string, and scale: z_score by 'tipped' takes float or int
columns: weights, scale: z_score
    -> column 'weights' is a column of up to 5 values per row (float), and scale: z_score takes
    float or int; what fits it: length: n with a scale, where all lists have n values, or one value
    per row; derive columns from it
columns: weights, scale: none, length: 2 -> use length: 5 if all rows have as many
columns: tags, scale: none, length: 2 -> length: 2 takes lists of numbers
columns: tags, encode: vocabulary
    -> 'tags' is a column of up to 5 values per row (string), and encode: vocabulary takes string or
    int; what fits it: encode: multi_hot, or one value per row
columns: dropoff_*, scale: none -> pattern 'dropoff_*' matches no column
columns: company, encode: vocabulary, share: true
    -> group 'g': share: true needs several columns, and
columns: [company, tipped], encode: vocabulary, share: true
    -> columns of one type, and 'company' is string, 'tipped' is of type int
"""


def test_specs_that_do_not_fit_the_data_are_refused() -> None:
    for fields, words in _lines(_SPECS):
        _check_refused(TAXI, {"groups": [FARE], **fields}, words)


_SPECS = """
groups: [{name: g, columns: tip, scale: none}], label: {column: tips, kind: regression}
    -> column 'tip' is not in the data; did you mean 'tipped'?
label: {column: tipt, kind: binary}
    -> features.label.column='tipt' is not in the data; did you mean 'tips'? A column that is
    computed from others needs features.derive.
label: {column: company, kind: binary}
    -> label 'company' is of type string, which kind: binary cannot take; name the value that counts
    as 1 in label.positive
label: {column: company, kind: regression} -> use a column of type float or int
label: {column: tips, kind: multiclass}
    -> label 'tips' is of type float, which kind: multiclass cannot take
label: {column: company, kind: binary, positive: 1}
    -> label.positive=1 is never equal to a value of 'company'
label: {column: tipped, kind: binary, positive: "1"} -> write it as a number
weight: company -> weight 'company' is of type string; use a number
passthrough: nope -> features.passthrough='nope' is not in the data
passthrough: fare
    -> column 'fare' is passthrough and in group 'money'; each output needs its own name
derive: no_such_module.f
    -> features.derive='no_such_module.f' cannot be imported: ModuleNotFoundError
derive: transform.spec.features.no_such
    -> module 'transform.spec.features' has no function 'no_such'
crosses: [{name: c, columns: [company, trip_hour], encode: vocabulary}]
    -> cross 'c': column 'trip_hour' is not in the data; did you mean 'trip_start_hour'?
crosses: [{name: c, columns: [company, fare], encode: {hash: {buckets: 8}}}]
    -> cross 'c': column 'fare' is of type float, which crosses by its bucket; put it into a group
    with encode: {bucketize: {buckets: n}}
crosses: [{name: c, columns: [company, tags], encode: vocabulary}]
    -> a cross takes one value per row; derive a column from it
crosses: [{name: fare, columns: [company, tipped], encode: vocabulary}]
    -> column 'fare' is in group 'money' and a cross; each output needs its own name
"""


def test_a_float_crosses_by_its_bucket_and_not_with_a_vocabulary() -> None:
    group = {"name": "g", "columns": "fare", "encode": {"bucketize": {"buckets": 3}}}
    cross = {"name": "c", "columns": ["company", "fare"], "encode": "vocabulary"}
    words = "'fare' is of type float, whose buckets the one pass over the data learns together"
    _check_refused(TAXI, {"groups": [group], "crosses": [cross]}, words)
    hashed = {**cross, "encode": {"hash": {"buckets": 9}}}
    check_spec(FeatureSpec.model_validate({"groups": [group], "crosses": [hashed]}), TAXI)


def test_what_fits_the_data_passes() -> None:
    for fields, _ in _lines("""
columns: ta*, encode: {multi_hot: {top_k: 3}}
dtype: string, exclude: company, encode: {multi_hot: {top_k: 3}}
columns: company, encode: {date: {parts: hour}}
columns: tipped, encode: vocabulary
columns: weights, scale: none, length: 5
"""):
        check_spec(FeatureSpec.model_validate({"groups": [{"name": "g", **fields}]}), TAXI)
    schema = _schema(words="string")
    schema.feature[0].shape.dim.add(size=3)
    words = "up to 3 values per row (string), and encode: vocabulary"
    group = {"name": "g", "columns": "words", "encode": "vocabulary"}
    _check_refused(schema, {"groups": [group]}, words)


def test_derived_columns_are_known_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    def derive(inputs: dict[str, Any]) -> dict[str, Any]:
        return {"ratio": tf.sparse.to_dense(inputs["fare"]), "word": inputs["company"]}

    module = types.ModuleType("derive_for_spec_tests")
    module.__dict__.update(derive=derive)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    path = {"derive": "derive_for_spec_tests.derive"}
    check_spec(FeatureSpec.model_validate({"groups": [{**FARE, "columns": "ratio"}], **path}), TAXI)
    words = "'word' is of type string, and scale: z_score"
    _check_refused(TAXI, {"groups": [{**FARE, "columns": "word"}], **path}, words)


def test_an_encoder_beyond_the_schemas_domain_is_refused() -> None:
    for fields, words in _lines(_BEYOND):
        _check_refused(_domains(), {"groups": [{"name": "g", **fields}]}, words)


_BEYOND = """
columns: payment, encode: {vocabulary: {top_k: 4}}
    -> group 'g': column 'payment' has 3 values in the schema's domain, fewer than top_k=4; use
    top_k: 3
columns: company, encode: {vocabulary: {top_k: 3}} -> 'company' has 2 values
columns: company, encode: {multi_hot: {top_k: 3}} -> use top_k: 2
columns: area, encode: {vocabulary: {top_k: 78}} -> use top_k: 77
columns: area, encode: {integer: {size: 79}} -> use size: 78
columns: payment, encode: {one_hot: {values: [Cash, Crad]}}
    -> 'payment': value 'Crad' is not in the schema's domain; did you mean 'Card'
columns: area, encode: {one_hot: {values: [1, 78]}} -> use an int of 1..77
columns: area, encode: {multi_hot: {values: [x]}} -> 'x' is not in the schema's domain
columns: [payment, company], encode: {vocabulary: {top_k: 6}}, share: true
    -> group 'g' (share: true) has 5 values
columns: [area, stop], encode: {integer: {size: 101}}, share: true -> use size: 100
"""


def test_an_encoder_within_the_schemas_domain_passes() -> None:
    for fields, _ in _lines("""
columns: payment, encode: {vocabulary: {top_k: 3}}
columns: payment, encode: vocabulary
columns: open, encode: {vocabulary: {top_k: 9}}
columns: area, encode: {integer: {size: 78}}
columns: area, encode: {one_hot: {values: [1, 77]}}
columns: payment, encode: {hash: {buckets: 9}}
columns: [payment, company], encode: {vocabulary: {values: [Cash, a]}}, share: true
columns: [payment, open], encode: {vocabulary: {top_k: 6}}, share: true
columns: [area, stop], encode: {integer: {size: 100}}, share: true
"""):
        check_spec(FeatureSpec.model_validate({"groups": [{"name": "g", **fields}]}), _domains())
