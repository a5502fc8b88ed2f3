"""Which columns each group takes, and what does not fit a TFDV schema, in which words.

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
from transform.resolve.select import reads_texts, resolve, step_of, takes_lists
from transform.spec.common import Multivalued, SeenType
from transform.spec.group import Group

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
groups: [{name: g, columns: fare, encode: {bucketize: {buckets: 3}}}],
    crosses: [{name: c, columns: [company, fare], encode: vocabulary}]
    -> 'fare' is of type float, whose buckets the one pass over the data learns together
crosses: [{name: c, columns: [company, tags], encode: vocabulary}]
    -> a cross takes one value per row; derive a column from it
crosses: [{name: fare, columns: [company, tipped], encode: vocabulary}]
    -> column 'fare' is in group 'money' and a cross; each output needs its own name
"""


def test_what_fits_the_data_passes() -> None:
    for fields, _ in _lines("""
columns: ta*, encode: {multi_hot: {top_k: 3}}
dtype: string, exclude: company, encode: {multi_hot: {top_k: 3}}
columns: company, encode: {date: {parts: hour}}
columns: tipped, encode: vocabulary
columns: [tipped, fare], encode: {integer: {size: 2}}, share: true
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


def test_a_listed_value_outside_the_schemas_domain_is_refused() -> None:
    for fields, words in _lines(_BEYOND):
        _check_refused(_domains(), {"groups": [{"name": "g", **fields}]}, words)


_BEYOND = """
columns: payment, encode: {one_hot: {values: [Cash, Crad]}}
    -> 'payment': value 'Crad' is not in the schema's domain; did you mean 'Card'
columns: area, encode: {one_hot: {values: [1, 78]}} -> use an int of 1..77
columns: area, encode: {multi_hot: {values: [x]}} -> 'x' is not in the schema's domain
"""


def test_a_listed_value_within_the_schemas_domain_passes() -> None:
    for fields, _ in _lines("""
columns: open, encode: {one_hot: {values: [Crad]}}
columns: area, encode: {one_hot: {values: [1, 77]}}
columns: payment, encode: {vocabulary: {values: [Crad]}}
columns: payment, encode: {multi_hot: {top_k: 9}}
"""):
        check_spec(FeatureSpec.model_validate({"groups": [{"name": "g", **fields}]}), _domains())


TYPES: dict[str, SeenType] = {
    **dict.fromkeys(("fare", "trip_miles", "tips"), "float"),
    **dict.fromkeys(("trip_seconds", "trip_start_hour", "tipped"), "int"),
    "company": "string",
    "tags": Multivalued("string", "a column of up to 5 values per row", 5),
    "weights": Multivalued("float", "a column of up to 5 values per row", 5),
}


def _crossed(*columns: str, encode: Any = None) -> dict[str, Any]:
    cross = {"name": "c", "columns": columns, "encode": encode or {"hash": {"buckets": 8}}}
    return {"groups": [FARE], "crosses": [cross]}


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
    names = dict.fromkeys(("a", "b", "a x b"), "string")
    with pytest.raises(ValueError, match=r"cross 'c' is shown as 'a x b', which is a column"):
        _columns_of(_crossed("a", "b"), **names, fare="float")


def _group(**options: Any) -> Group:
    return Group.model_validate({"name": "g", "columns": "x", **options})


def test_how_columns_are_read() -> None:
    number, words = _group(scale="none"), _group(encode="vocabulary")
    date = _group(encode={"date": {"parts": "hour"}})
    assert [reads_texts(group, "int") for group in (number, words, date)] == [False, True, False]
    assert reads_texts(date, "string")
    lists = (_group(encode={"multi_hot": {"top_k": 2}}), _group(scale="none", length=2), date)
    assert [takes_lists(group) for group in lists] == [True, True, False]
    assert [step_of(group) for group in (date, number)] == ["encode: date", "scale: none"]
