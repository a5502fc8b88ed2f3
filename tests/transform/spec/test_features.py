"""Errors of a spec that need no data, and their messages.

A cross without data.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from transform import FeatureSpec
from transform.spec.features import Cross

SCALED = {"name": "money", "columns": ["fare"], "scale": "z_score"}


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
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Time of the processor: about 0.5 s, also if others use it.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 10


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
            r"1 validation error.*\n.*\n.*'gaussian', 'power', 'log1p', 'asinh' or 'none'",
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
            "'money': scale: z_score needs statistics of the clipped values.*use scale: robust",
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


def _cross(**options: Any) -> Cross:
    return Cross.model_validate(
        {"name": "c", "columns": ["a", "b"], "encode": "vocabulary", **options}
    )


def test_it_is_named_by_its_columns() -> None:
    assert _cross(columns=["a", "b", "c"]).source == "a x b x c"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": "a"}, r"cross 'c': columns=\['a'\]; give two or more different"),
        ({"columns": ["a", "b", "a"]}, "give two or more different columns"),
        ({"encode": {"integer": {"size": 2}}}, "encode: integer takes no combination of values"),
        ({"share": True}, "share\n  Extra inputs are not permitted"),
    ],
)
def test_what_cannot_cross_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        _cross(**options)
