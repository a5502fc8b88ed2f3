"""A spec against the domains of a TFDV schema; nothing here runs Beam."""

from __future__ import annotations

from typing import Any

import pytest
from tensorflow_metadata.proto.v0 import schema_pb2

from transform import FeatureSpec, check_spec


def _encoded(column: str | list[str], **encoder: Any) -> dict[str, Any]:
    return {"name": "g", "columns": column, "encode": encoder}


def _schema(**columns: str) -> schema_pb2.Schema:
    kinds = {"int": schema_pb2.INT, "string": schema_pb2.BYTES}
    schema = schema_pb2.Schema()
    for name, kind in columns.items():
        schema.feature.add(name=name, type=kinds[kind])
    return schema


def _with_domains() -> schema_pb2.Schema:
    schema = _schema(payment="string", company="string", area="int", open="string", stop="int")
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
        (
            {**_encoded(["payment", "company"], vocabulary={"top_k": 6}), "share": True},
            r"group 'g' \(share: true\) has 5 values .* use top_k: 5",
        ),
        (
            {**_encoded(["area", "stop"], integer={"size": 101}), "share": True},
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
        _encoded("payment", vocabulary={"top_k": 3}),
        _encoded("payment", vocabulary={}),
        _encoded("open", vocabulary={"top_k": 9}),
        _encoded("area", integer={"size": 78}),
        _encoded("area", one_hot={"values": [1, 77]}),
        _encoded("payment", hash={"buckets": 9}),
        {**_encoded(["payment", "company"], vocabulary={"values": ["Cash", "a"]}), "share": True},
        {**_encoded(["payment", "open"], vocabulary={"top_k": 6}), "share": True},
        {**_encoded(["area", "stop"], integer={"size": 100}), "share": True},
    ],
)
def test_an_encoder_within_the_schemas_domain_passes(group: dict[str, Any]) -> None:
    check_spec(FeatureSpec.model_validate({"groups": [group]}), _with_domains())
