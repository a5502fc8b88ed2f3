"""What a spec refuses, and in which words; nothing here runs Beam."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest
from pydantic import ValidationError
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


def test_importing_a_spec_needs_no_tensorflow_and_a_second() -> None:
    code = (
        "import sys, transform; transform.FeatureSpec(groups=[dict(name='g', columns='a', "
        "scale='z_score')]); assert 'tensorflow' not in sys.modules"
    )
    start = time.monotonic()
    subprocess.run([sys.executable, "-c", code], check=True)
    assert time.monotonic() - start < 10  # about 0.5 s on an idle machine


def test_json_round_trip() -> None:
    spec = FeatureSpec.model_validate(
        _groups(
            {**SCALED, "impute": {"constant": 1.0}, "clip": {"min": 0}, "missing_indicator": True},
            {"name": "c", "columns": "company", "encode": "vocabulary"},
            {"name": "b", "dtype": "float", "encode": {"bucketize": {"buckets": 4}}},
            label={"column": "tipped", "kind": "binary", "sources": "tips"},
        )
    )
    assert FeatureSpec.model_validate(spec.model_dump(mode="json")) == spec
    assert FeatureSpec.model_validate_json(spec.model_dump_json()) == spec
    assert spec.raw_columns() == ("fare", "company", "tipped", "tips")
    assert FeatureSpec.model_json_schema()["properties"]["groups"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            _groups({"name": "g", "columns": "tags", "length": 5, **_vocabulary()}),
            "length goes with scale, not with encode: vocabulary",
        ),
        (
            _groups(_encoded("company", vocabulary={"values": ["a"], "top_k": 3})),
            "vocabulary has values and top_k=3",
        ),
        (
            _groups(_encoded("company", vocabulary={"values": ["a"], "min_count": 3})),
            "vocabulary has values and min_count=3",
        ),
        (
            _groups(_encoded("company", vocabulary={"values": ["a", "b", "a"]})),
            "vocabulary.values holds 'a' twice",
        ),
        ({}, "features has no groups"),
        (_groups(SCALED, group=1), "Extra inputs are not permitted"),
        (_groups({**SCALED, "sclae": "z_score"}), r"groups.0.sclae\n\s+Extra inputs"),
        (
            _groups({**SCALED, "scale": "zscore"}),
            r"1 validation error.*\n.*\n.*'min_max', 'robust', 'gaussian', 'log1p' or 'none'",
        ),
        (_groups({"name": "g", "columns": "a"}), "'g' has neither scale nor encode"),
        (_groups({**SCALED, "encode": {"hash": {"buckets": 2}}}), "has both scale and encode"),
        (_groups({"name": "g", "scale": "none"}), "'g' selects nothing"),
        (_groups({**SCALED, "columns": ["others", "fare"]}), "`others` stands alone"),
        (_groups({**SCALED, "clip": {"min": 3, "max": 1}}), r"clip.min=3.0 is not below"),
        (_groups({**SCALED, "clip": {}}), "clip has no bound"),
        (_groups({**SCALED, "impute": {"constant": float("nan")}}), "itself a missing value"),
        (
            _groups({**SCALED, "impute": "mode"}),
            r"1 validation error.*\n.*\n.*'mean', 'median' or 'most_frequent'",
        ),
        (_groups({**SCALED, "clip": {"quantiles": [0.9, 0.1]}}), r"\[0.9, 0.1\] is no range"),
        (_groups({**SCALED, "clip": {"quantiles": [0.1, 1.5]}}), "is no range of shares"),
        (_groups({**SCALED, "clip": {"quantiles": [0.0005, 1]}}), "0.0005 is finer than the"),
        (_groups({**SCALED, "clip": {"min": 0, "quantiles": [0, 1]}}), "both quantiles and min"),
        (
            _groups({**SCALED, "clip": {"quantiles": [0.01, 0.99]}}),
            "'money': scale: z_score needs the mean of the clipped values.*use scale: robust",
        ),
        (
            _groups(
                {**SCALED, "scale": "none", "impute": "mean", "clip": {"quantiles": [0.01, 0.99]}}
            ),
            "'money': impute: mean needs the mean of the clipped values.*impute: median",
        ),
        (
            _groups(
                {
                    "name": "g",
                    "columns": "a",
                    "encode": {"bucketize": {"buckets": 2}},
                    "clip": {"quantiles": [0.01, 0.99]},
                }
            ),
            "clip.quantiles does not go with encode: bucketize",
        ),
        (
            _groups({**SCALED, "impute": {"constant": -1}, "clip": {"min": 0}}),
            r"'money': impute.constant=-1.0 lies outside clip \[0.0, inf\]",
        ),
        (_groups(SCALED, SCALED), "two groups are named 'money'"),
        (_groups(SCALED, {**SCALED, "name": "b"}), "'fare' is in group 'money' and again in group"),
        (
            _groups(
                {
                    "name": "g",
                    "columns": "a",
                    "encode": {"hash": {"buckets": 2}, "integer": {"size": 2}},
                }
            ),
            "encode names .* give exactly one",
        ),
        (
            _groups({"name": "g", "columns": "a", "encode": {"integer": {"size": 0}}}),
            "greater than or equal to 1",
        ),
        (
            _groups({"name": "g", "columns": "a", "encode": "vocabulary", "impute": "mean"}),
            "impute: mean does not go with encode, where missing has an own id; remove it, or use",
        ),
        (
            _groups(SCALED, label={"column": "fare", "kind": "binary"}),
            "'fare' is the label and also",
        ),
        (
            _groups(SCALED, label={"column": "y", "kind": "binary", "sources": ["fare"]}),
            "'fare' is in label.sources and also in group 'money'",
        ),
        (_groups(SCALED, weight="fare"), "'fare' is the weight and also in group 'money'"),
        (
            _groups(SCALED, label={"column": "y", "kind": "regression", "positive": 1}),
            "label.positive=1 does not go with kind: regression",
        ),
        (_groups(SCALED, derive="function"), "names no module"),
        (_crossed("company"), r"cross 'c': columns=\['company'\]; give two or more different"),
        (_crossed("a", "a"), "give two or more different columns"),
        (
            _crossed("a", "b", encode={"integer": {"size": 3}}),
            "encode: integer takes no combination of values; use encode: hash or vocabulary",
        ),
        (
            {**_crossed("a", "y"), "label": {"column": "y", "kind": "binary"}},
            "'y' is the label and also in cross 'c'",
        ),
        (
            _groups({**SCALED, "name": "c"}, crosses=_crossed("a", "b")["crosses"]),
            "cross 'c' has the name of another cross or group",
        ),
        (_groups(_encoded("a", multi_hot={})), "multi_hot has neither values nor top_k"),
        (_groups(_encoded("a", multi_hot={"top_k": 2, "values": ["x"]})), "has both values and"),
        (
            _groups({**SCALED, "scale": {"z_score": {"by": "b", "max_keys": 0}}}),
            "greater than or equal to 1",
        ),
        (_groups({**SCALED, "scale": {"min_max": {"by": "b"}}}), "min_max\n  Extra inputs are not"),
        (
            _groups({**_encoded("a", hash={"buckets": 2}), "impute": {"constant": 1}}),
            "impute: {constant: ...} does not go with encode",
        ),
        (_groups(SCALED, derive="my module.f"), "is no dotted path"),
    ],
)
def test_a_contradictory_spec_is_refused(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        FeatureSpec.model_validate(spec)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            _groups({**SCALED, "columns": ["fair"]}),
            "group 'money': column 'fair' is not in the data; did you mean 'fare'?",
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
    with pytest.raises(ValueError) as error:  # noqa: PT011 (compared in full below)
        check_spec(FeatureSpec.model_validate(spec), TAXI)
    assert message in str(error.value)


def test_several_values_per_row_are_refused_when_the_schema_tells() -> None:
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


def _with_domains() -> schema_pb2.Schema:
    schema = _schema(payment="string", company="string", area="int", open="string")
    schema.feature[0].string_domain.value.extend(["Cash", "Card", "Dispute"])
    schema.string_domain.add(name="companies").value.extend(["a", "b"])
    schema.feature[1].domain = "companies"
    schema.feature[2].int_domain.min, schema.feature[2].int_domain.max = 1, 77
    schema.feature[3].string_domain.value.extend(["Cash"])
    schema.feature[3].distribution_constraints.min_domain_mass = 0.9
    return schema


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (
            _encoded("payment", vocabulary={"top_k": 4}),
            "group 'g': column 'payment' has 3 values in the schema's domain, fewer than top_k=4; "
            "use top_k: 3",
        ),
        (_encoded("company", vocabulary={"top_k": 3}), "'company' has 2 values .* use top_k: 2"),
        (_encoded("company", multi_hot={"top_k": 3}), "'company' has 2 values .* use top_k: 2"),
        (_encoded("area", vocabulary={"top_k": 78}), "'area' has 77 values .* use top_k: 77"),
        (_encoded("area", integer={"size": 79}), "'area' goes up to 77 .* use size: 78"),
        (
            _encoded("payment", one_hot={"values": ["Cash", "Crad"]}),
            "'payment': value 'Crad' is not in the schema's domain; did you mean 'Card'",
        ),
        (_encoded("area", one_hot={"values": [1, 78]}), "'78' .* use an int of 1..77"),
        (_encoded("area", multi_hot={"values": ["x"]}), "'x' is not in the schema's domain"),
    ],
)
def test_an_encoder_beyond_the_schemas_domain_is_refused(
    group: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check_spec(FeatureSpec.model_validate(_groups(group)), _with_domains())


@pytest.mark.parametrize(
    "group",
    [
        _encoded("payment", vocabulary={"top_k": 3}),
        _encoded("payment", vocabulary={}),
        _encoded("open", vocabulary={"top_k": 9}),
        _encoded("area", integer={"size": 78}),
        _encoded("area", one_hot={"values": [1, 77]}),
        _encoded("payment", hash={"buckets": 9}),
    ],
)
def test_an_encoder_within_the_schemas_domain_passes(group: dict[str, Any]) -> None:
    check_spec(FeatureSpec.model_validate(_groups(group)), _with_domains())


def test_names_then_globs_then_dtype_then_others() -> None:
    from transform.columns.types import column_types
    from transform.resolve.select import resolve

    spec = FeatureSpec.model_validate(
        _groups(
            {"name": "rest", "columns": "others", "exclude": ["tags", "weights"], "scale": "none"},
            {"name": "ints", "dtype": "int", "encode": {"integer": {"size": 24}}},
            {"name": "trips", "columns": "trip_*", "exclude": "*_hour", "scale": "min_max"},
            {"name": "words", "dtype": "string", "encode": "vocabulary"},
            label={"column": "tipped", "kind": "binary", "sources": ["tips"]},
        )
    )
    resolved = {r.group.name: r.columns for r in resolve(spec, column_types(TAXI))}
    assert resolved == {
        "rest": ("fare",),
        "ints": ("trip_start_hour",),
        "trips": ("trip_miles", "trip_seconds"),
        "words": ("company",),
    }


def _columns_of(spec: dict[str, Any], **types: str) -> dict[str, tuple[str, ...]]:
    from transform.resolve.select import resolve

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
