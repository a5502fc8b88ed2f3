"""A spec against a TFDV schema: what does not fit is refused, and in which words.

A spec against the domains of a TFDV schema; nothing here runs Beam.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tensorflow_metadata.proto.v0 import schema_pb2

from transform import FeatureSpec, check_spec

SCALED = {"name": "money", "columns": ["fare"], "scale": "z_score"}


def _schema(**columns: str) -> schema_pb2.Schema:
    kinds = {"float": schema_pb2.FLOAT, "int": schema_pb2.INT, "string": schema_pb2.BYTES}
    schema = schema_pb2.Schema()
    for name, kind in columns.items():
        schema.feature.add(name=name, type=kinds[kind])
    return schema


TAXI = _schema(
    fare="float",
    trip_miles="float",
    trip_seconds="int",
    company="string",
    trip_start_hour="int",
    tips="float",
    tipped="int",
)
TAXI.feature.add(name="tags", type=schema_pb2.BYTES).value_count.max = 5
TAXI.feature.add(name="weights", type=schema_pb2.FLOAT).value_count.max = 5


def _encoded(column: str, **encoder: Any) -> dict[str, Any]:
    return {"name": "g", "columns": column, "encode": encoder}


def _vocabulary() -> dict[str, Any]:
    return {"encode": "vocabulary"}


def _crossed(*columns: str, encode: Any = None) -> dict[str, Any]:
    cross = {"name": "c", "columns": columns, "encode": encode or {"hash": {"buckets": 8}}}
    return {"groups": [SCALED], "crosses": [cross]}


def _groups(*groups: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"groups": list(groups), **fields}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            _groups({**SCALED, "columns": ["fair"]}),
            "group 'money': column 'fair' is not in the data; did you mean 'fare'?",
        ),
        (  # never the label
            _groups({**SCALED, "columns": ["tip"]}, label={"column": "tips", "kind": "regression"}),
            "column 'tip' is not in the data; did you mean 'tipped'?",
        ),
        (
            _groups(
                {**SCALED, "scale": {"z_score": {"by": "tips_"}}},
                label={"column": "tips", "kind": "regression"},
            ),
            "by='tips_' is not in the data; the data has: company, fare, tags, tipped, trip_miles",
        ),
        (
            _groups({**SCALED, "columns": ["Trip_Miles"]}),
            "column 'Trip_Miles' is not in the data; did you mean 'trip_miles'?",
        ),
        (
            _groups({**SCALED, "columns": ["zzz"]}),
            "the data has: company, fare, tags, tipped, tips, trip_miles, trip_seconds",
        ),
        (
            _groups({**SCALED, "columns": ["company"]}),
            "column 'company' is of type string, and scale: z_score takes float or int; "
            "what fits it: encode: vocabulary | hash",
        ),
        (
            _groups({"name": "g", "columns": "fare", "encode": "vocabulary"}),
            "column 'fare' is of type float, and encode: vocabulary takes string or int",
        ),
        (
            _groups({"name": "g", "columns": "company", "encode": {"integer": {"size": 3}}}),
            "column 'company' is of type string, and encode: integer takes float or int",
        ),
        (
            _groups({**SCALED, "scale": {"z_score": {"by": "compny"}}}),
            "group 'money': scale.z_score.by='compny' is not in the data; did you mean 'company'?",
        ),
        (
            _groups({**SCALED, "scale": {"z_score": {"by": "tips"}}}),
            "group 'money': scale.z_score.by='tips' is of type float; use a string or int column",
        ),
        (
            _groups({"name": "g", "dtype": "int", "scale": {"z_score": {"by": "tipped"}}}),
            "scale.z_score.by='tipped' is among the columns to scale",
        ),
        (
            _groups({**SCALED, "columns": "company", "scale": {"z_score": {"by": "tipped"}}}),
            "column 'company' is of type string, and scale: z_score by 'tipped' takes float or int",
        ),
        (
            _groups({**SCALED, "columns": "weights"}),
            "column 'weights' is a column of up to 5 values per row (float), and scale: z_score "
            "takes float or int; what fits it: length: n with a scale, where all lists have n "
            "values, or one value per row; derive columns from it",
        ),
        (
            _groups(_encoded("tags", vocabulary={})),
            "'tags' is a column of up to 5 values per row (string), and encode: vocabulary takes "
            "string or int; what fits it: encode: multi_hot, or one value per row",
        ),
        (
            _groups(_encoded("weights", multi_hot={"top_k": 3})),
            "up to 5 values per row (float), and encode: multi_hot takes string or int",
        ),
        (
            _groups(_encoded("fare", date={"parts": "hour"})),
            "column 'fare' is of type float, and encode: date takes string or int",
        ),
        (
            _crossed("company", "trip_hour"),
            "cross 'c': column 'trip_hour' is not in the data; did you mean 'trip_start_hour'?",
        ),
        (
            _crossed("company", "fare"),
            "cross 'c': column 'fare' is of type float, which crosses by its bucket; put it into a "
            "group with encode: {bucketize: {buckets: n}}",
        ),
        (
            _groups(
                _encoded("fare", bucketize={"buckets": 3}),
                crosses=_crossed("company", "fare", encode="vocabulary")["crosses"],
            ),
            "'fare' is of type float, whose buckets the one pass over the data learns together "
            "with a vocabulary; use encode: {hash: {buckets: n}}",
        ),
        (_crossed("company", "tags"), "a cross takes one value per row; derive a column from it"),
        (
            _groups(
                {**SCALED, "name": "g"},
                crosses=[
                    {"name": "fare", "columns": ["company", "tipped"], "encode": "vocabulary"}
                ],
            ),
            "column 'fare' is in group 'g' and a cross; each output needs its own name",
        ),
        (_groups({**SCALED, "columns": ["dropoff_*"]}), "pattern 'dropoff_*' matches no column"),
        (
            _groups({"name": "s", "dtype": "string", "columns": "t*", "encode": "vocabulary"}),
            "pattern 't*' matches no column that is free",
        ),
        (
            _groups(SCALED, label={"column": "tipt", "kind": "binary"}),
            "features.label.column='tipt' is not in the data; did you mean 'tips'? A column that "
            "is computed from others needs features.derive.",
        ),
        (
            _groups(SCALED, label={"column": "company", "kind": "binary"}),
            "label 'company' is of type string, which kind: binary cannot take; name the value "
            "that counts as 1 in label.positive",
        ),
        (
            _groups(SCALED, label={"column": "tips", "kind": "multiclass"}),
            "label 'tips' is of type float, which kind: multiclass cannot take",
        ),
        (
            _groups(SCALED, label={"column": "company", "kind": "binary", "positive": 1}),
            "label.positive=1 is never equal to a value of 'company'",
        ),
        (_groups(SCALED, weight="company"), "weight 'company' is of type string; use a number"),
        (_groups(SCALED, passthrough="nope"), "features.passthrough='nope' is not in the data"),
        (
            _groups(SCALED, passthrough="fare"),
            "column 'fare' is passthrough and in group 'money'; each output needs its own name",
        ),
        (
            _groups(SCALED, derive="no_such_module.f"),
            "features.derive='no_such_module.f' cannot be imported: ModuleNotFoundError",
        ),
        (
            _groups(SCALED, derive="transform.spec.features.no_such"),
            "module 'transform.spec.features' has no function 'no_such'",
        ),
    ],
)
def test_a_spec_that_does_not_fit_the_data_is_refused(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        check_spec(FeatureSpec.model_validate(spec), TAXI)
    assert message in str(error.value)


def test_several_values_per_row_are_refused_from_the_schema() -> None:
    schema = _schema(fare="float", words="string")
    schema.feature[1].value_count.max = 4
    spec = _groups({"name": "g", "columns": "words", "encode": "vocabulary"})
    with pytest.raises(ValueError, match="'words' is a column of up to 4 values per row"):
        check_spec(FeatureSpec.model_validate(spec), schema)
    schema.feature[1].ClearField("value_count")
    schema.feature[1].shape.dim.add(size=3)
    with pytest.raises(
        ValueError, match=r"up to 3 values per row \(string\), and encode: vocabulary"
    ):
        check_spec(FeatureSpec.model_validate(spec), schema)


def test_a_set_is_taken_by_glob_dtype_and_others() -> None:
    for selects in ({"columns": "ta*"}, {"dtype": "string", "exclude": "company"}):
        group = {"name": "g", "encode": {"multi_hot": {"top_k": 3}}, **selects}
        check_spec(FeatureSpec.model_validate(_groups(group)), TAXI)


def test_derived_columns_are_known_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    import types

    import tensorflow as tf

    def derive(inputs: dict[str, Any]) -> dict[str, Any]:
        return {"ratio": tf.sparse.to_dense(inputs["fare"]), "word": inputs["company"]}

    def wants(inputs: dict[str, Any]) -> dict[str, Any]:
        return {"x": inputs["fair"]}

    def again(inputs: dict[str, Any]) -> dict[str, Any]:
        return {"fare": inputs["fare"]}

    module = types.ModuleType("derive_for_spec_tests")
    module.__dict__.update(derive=derive, wants=wants, again=again)
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def check(function: str, *groups: dict[str, Any]) -> None:
        spec = _groups(*groups, derive=f"derive_for_spec_tests.{function}")
        check_spec(FeatureSpec.model_validate(spec), TAXI)

    check("derive", {**SCALED, "columns": ["ratio"]})
    with pytest.raises(ValueError, match="'word' is of type string, and scale: z_score"):
        check("derive", {**SCALED, "columns": ["word"]})
    with pytest.raises(ValueError, match="'ratios' is not in the data; did you mean 'ratio'"):
        check("derive", {**SCALED, "columns": ["ratios"]})
    with pytest.raises(ValueError, match="wants column 'fair' that the data lacks"):
        check("wants", SCALED)
    with pytest.raises(ValueError, match="returned column 'fare', which the data has already"):
        check("again", SCALED)


def _encoded_of_domains(column: str | list[str], **encoder: Any) -> dict[str, Any]:
    return {"name": "g", "columns": column, "encode": encoder}


def _schema_of_domains(**columns: str) -> schema_pb2.Schema:
    kinds = {"int": schema_pb2.INT, "string": schema_pb2.BYTES}
    schema = schema_pb2.Schema()
    for name, kind in columns.items():
        schema.feature.add(name=name, type=kinds[kind])
    return schema


def _with_domains() -> schema_pb2.Schema:
    schema = _schema_of_domains(
        payment="string", company="string", area="int", open="string", stop="int"
    )
    schema.feature[0].string_domain.value.extend(["Cash", "Card", "Dispute"])
    schema.string_domain.add(name="companies").value.extend(["a", "b"])
    schema.feature[1].domain = "companies"
    schema.feature[2].int_domain.min, schema.feature[2].int_domain.max = 1, 77
    schema.feature[3].string_domain.value.extend(["Cash"])
    schema.feature[3].distribution_constraints.min_domain_mass = 0.9
    schema.feature[4].int_domain.min, schema.feature[4].int_domain.max = 5, 99
    return schema


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (
            _encoded_of_domains("payment", vocabulary={"top_k": 4}),
            "group 'g': column 'payment' has 3 values in the schema's domain, fewer than top_k=4; "
            "use top_k: 3",
        ),
        (
            _encoded_of_domains("company", vocabulary={"top_k": 3}),
            "'company' has 2 values .* use top_k: 2",
        ),
        (
            _encoded_of_domains("company", multi_hot={"top_k": 3}),
            "'company' has 2 values .* use top_k: 2",
        ),
        (
            _encoded_of_domains("area", vocabulary={"top_k": 78}),
            "'area' has 77 values .* use top_k: 77",
        ),
        (_encoded_of_domains("area", integer={"size": 79}), "'area' goes up to 77 .* use size: 78"),
        (
            _encoded_of_domains("payment", one_hot={"values": ["Cash", "Crad"]}),
            "'payment': value 'Crad' is not in the schema's domain; did you mean 'Card'",
        ),
        (_encoded_of_domains("area", one_hot={"values": [1, 78]}), "'78' .* use an int of 1..77"),
        (
            _encoded_of_domains("area", multi_hot={"values": ["x"]}),
            "'x' is not in the schema's domain",
        ),
        (
            {**_encoded_of_domains(["payment", "company"], vocabulary={"top_k": 6}), "share": True},
            r"group 'g' \(share: true\) has 5 values .* use top_k: 5",
        ),
        (
            {**_encoded_of_domains(["area", "stop"], integer={"size": 101}), "share": True},
            "goes up to 99 .* use size: 100",
        ),
    ],
)
def test_an_encoder_beyond_the_schemas_domain_is_refused(
    group: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check_spec(FeatureSpec.model_validate({"groups": [group]}), _with_domains())


@pytest.mark.parametrize(
    "group",
    [
        _encoded_of_domains("payment", vocabulary={"top_k": 3}),
        _encoded_of_domains("payment", vocabulary={}),
        _encoded_of_domains("open", vocabulary={"top_k": 9}),
        _encoded_of_domains("area", integer={"size": 78}),
        _encoded_of_domains("area", one_hot={"values": [1, 77]}),
        _encoded_of_domains("payment", hash={"buckets": 9}),
        {
            **_encoded_of_domains(["payment", "company"], vocabulary={"values": ["Cash", "a"]}),
            "share": True,
        },
        {**_encoded_of_domains(["payment", "open"], vocabulary={"top_k": 6}), "share": True},
        {**_encoded_of_domains(["area", "stop"], integer={"size": 100}), "share": True},
    ],
)
def test_an_encoder_within_the_schemas_domain_passes(group: dict[str, Any]) -> None:
    check_spec(FeatureSpec.model_validate({"groups": [group]}), _with_domains())
