"""What a spec without data refuses, and in which words; and that it needs no TensorFlow."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from transform import FeatureSpec
from transform.spec.encoders import Bucketize, Encode, OneHot, Text, Vocabulary
from transform.spec.group import Group

FARE = {"name": "money", "columns": ["fare"], "scale": "z_score"}


def test_importing_a_spec_needs_no_tensorflow_and_a_second() -> None:
    """Nor do the blocks and the records of encoders and scalers, by which a spec is checked."""
    code = (
        "import sys, transform; transform.FeatureSpec(groups=[dict(name='g', columns='a', "
        "scale='z_score')])\n"
        "from transform.block import Block\n"
        "from transform.encode.table import ENCODERS\n"
        "from transform.scale.table import SCALERS\n"
        "from transform.resolve.select import check_spec\n"
        "assert ENCODERS and SCALERS and 'tensorflow' not in sys.modules"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Time of the processor: about 0.5 s, also if others use it.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 10


def test_json_round_trip() -> None:
    groups = [
        {**FARE, "impute": {"constant": 1.0}, "clip": {"min": 0}, "missing_indicator": True},
        {"name": "c", "columns": "company", "encode": "vocabulary"},
        {"name": "b", "dtype": "float", "encode": {"bucketize": {"buckets": 4}}},
    ]
    label = {"column": "tipped", "kind": "binary", "sources": "tips"}
    spec = FeatureSpec.model_validate({"groups": groups, "label": label})
    assert FeatureSpec.model_validate(spec.model_dump(mode="json")) == spec
    assert FeatureSpec.model_validate_json(spec.model_dump_json()) == spec
    assert spec.raw_columns() == ("fare", "company", "tipped", "tips")
    assert FeatureSpec.model_json_schema()["properties"]["groups"]


def _check_refused(spec_of: Callable[[dict[str, Any]], dict[str, Any]], table: str) -> None:
    """Each line of the table has fields as YAML, and a pattern of the error."""
    for line in re.sub(r"\n +", " ", table.strip()).splitlines():
        text, _, words = line.partition(" -> ")
        spec = spec_of(yaml.safe_load(f"{{{text}}}"))
        found = "nothing refused"
        try:
            FeatureSpec.model_validate(spec)
        except ValidationError as error:
            found = str(error)
        assert re.search(words, found, re.DOTALL), f"{text}: {found}"


def test_contradictory_groups_are_refused() -> None:
    _check_refused(lambda fields: {"groups": [{"name": "g", "columns": "a", **fields}]}, _GROUPS)


_GROUPS = r"""
sclae: z_score, scale: none -> groups.0.sclae\n\s+Extra inputs
scale: zscore -> 1 validation error.*'gaussian', 'power', 'log1p', 'asinh' or 'none'
columns: a
    -> 'g' has neither .*exactly one: scale: z_score \| .*none \| \[log1p, z_score\]
scale: none, encode: {hash: {buckets: 2}} -> has both scale and encode
scale: none, columns: [] -> 'g' selects nothing
scale: none, columns: [others, fare] -> `others` stands alone
scale: none, clip: {min: 3, max: 1} -> clip.min=3.0 is not below
scale: none, clip: {min: -.inf} -> clip.min=-inf is not finite; leave clip.min out
scale: none, clip: {} -> clip has no bound
scale: none, clip: {quantiles: [0.9, 0.1]} -> \[0.9, 0.1\] is no range.*give 0 <= low < high <= 1
scale: none, clip: {quantiles: [0.0005, 1]} -> 0.0005 is finer than the sketch's error of 0.001
scale: none, clip: {quantiles: [0, 1], max: 3} -> clip has both quantiles and min or max
scale: z_score, clip: {quantiles: [0.01, 0.99]}
    -> 'g': scale: z_score needs statistics of the clipped values.*use scale: robust
scale: power, clip: {quantiles: [0.01, 0.99]} -> scale: power needs statistics of the clipped values
scale: none, impute: mean, clip: {quantiles: [0.01, 0.99]}
    -> 'g': impute: mean needs the mean of the clipped values.*impute: median
encode: {bucketize: {buckets: 2}}, clip: {quantiles: [0, 1]}
    -> clip.quantiles does not go with encode: bucketize
scale: none, impute: {constant: .nan} -> constant=nan is itself a missing value
scale: none, impute: mode -> 1 validation error.*'mean', 'median' or 'most_frequent'
scale: none, impute: {constant: -1}, clip: {min: 0}
    -> 'g': impute.constant=-1.0 lies outside clip \[0.0, inf\]
encode: vocabulary, impute: mean
    -> impute: mean does not go with encode, where missing has an own id; remove it, or use
encode: {hash: {buckets: 2}}, impute: {constant: 1}
    -> impute: {constant: ...} does not go with encode
encode: {date: {parts: hour}}, impute: most_frequent
    -> encode: date, where missing has a separate id
encode: {multi_hot: {top_k: 3}}, impute: most_frequent
    -> encode: multi_hot, where missing has a separate column
scale: {z_score: {by: b}} -> has options, and no scaler takes any; .* tft.scale_to_z_score_per_key
scale: [] -> is no chain: give a function.*for example \[log1p, z_score\]
scale: [log1p, gaussian] -> is no chain
scale: [log1p, z_score], clip: {quantiles: [0, 1]} -> z_score needs statistics of the clipped values
encode: vocabulary, length: 5 -> length goes with scale, not with encode: vocabulary
scale: z_score, share: true -> share: true does not go with scale; remove it
encode: {bucketize: {buckets: 3}}, share: true -> share: true does not go with encode: bucketize
encode: {} -> no encoder; give exactly one of vocabulary, int
encode: {hash: {buckets: 2}, integer: {size: 2}} -> encode names .* give exactly one
encode: {integer: {size: 0}} -> greater than or equal to 1
encode: {vocabulary: {values: [a], top_k: 3}} -> vocabulary has values and top_k=3
encode: {vocabulary: {values: [a, b, a]}} -> vocabulary.values holds 'a' twice
encode: {one_hot: {values: []}} -> at least 1 item
encode: {one_hot: {values: [1, "1"]}} -> holds '1' twice
encode: {one_hot: {values: [a, ""]}} -> the empty text, which is missing
encode: {one_hot: {values: [true]}} -> valid string
encode: {multi_hot: {}} -> multi_hot has neither values nor top_k
encode: {multi_hot: {top_k: 2, values: [x]}} -> has both values and
encode: {bucketize: {}} -> neither buckets nor boundaries; give exactly one
encode: {bucketize: {buckets: 3, boundaries: [1]}} -> both buckets and boundaries; give exactly one
encode: {bucketize: {boundaries: [1, 1]}}
    -> boundaries=\[1.0, 1.0\]; give different finite numbers, asc
encode: {bucketize: {boundaries: []}} -> at least 1 item
encode: {text: {ngrams: 4}} -> text\.ngrams\n.*less than
encode: {date: {parts: []}} -> date gives nothing: name parts, of minute, hour,.* or elapsed: true
encode: {date: {parts: [hour, hour]}} -> date.parts holds 'hour' twice
encode: {date: {parts: decade}} -> 'minute', 'hour', 'weekday', 'weekend', 'day', 'week', 'month'
encode: {date: {parts: [month, year], cyclic: true}} -> no year comes again
encode: {date: {parts: hour, unit: days}} -> 'seconds', 'milliseconds' or 'microseconds'
encode: {date: {parts: month, format: "%Y%m%d", unit: milliseconds}} -> leave one out
encode: {date: {parts: month, format: "%d.%m"}} -> date\.format=.*lacks %Y or %y
encode: {date: {parts: month, format: "%d %m %b %Y"}} -> has %m and %b; use %m or %b or %B once
encode: {date: {parts: month, format: "%d %m %Y %z"}} -> %z is not supported; use of %Y, %y
encode: {date: {parts: month, format: "%d %m %Y %I"}}
    -> %I \(1 to 12\) and %p \(AM or PM\) go together
encode: {date: {parts: month, format: "%d %m %Y %M %M"}} -> has %M twice
encode: {date: {parts: month, format: "%d %m %Y %"}} -> ends with a percent sign
"""


def test_contradictory_specs_are_refused() -> None:
    _check_refused(lambda fields: {"groups": [FARE], **fields}, _SPECS)


_SPECS = r"""
groups: [] -> features has no groups
group: 1 -> Extra inputs are not permitted
groups: [{name: g, columns: a, scale: none}, {name: g, columns: b, scale: none}]
    -> two groups are named 'g'
groups: [{name: g, columns: a, scale: none}, {name: h, columns: a, scale: none}]
    -> 'a' is in group 'g' and again in group
label: {column: fare, kind: binary} -> 'fare' is the label and also
label: {column: y, kind: binary, sources: [fare]}
    -> 'fare' is in label.sources and also in group 'money'
label: {column: y, kind: regression, positive: 1}
    -> label.positive=1 does not go with kind: regression
weight: fare -> 'fare' is the weight and also in group 'money'
derive: function -> names no module
derive: my module.f -> is no dotted path
crosses: [{name: c, columns: [a, y], encode: vocabulary}], label: {column: y, kind: binary}
    -> 'y' is the label and also in cross 'c'
crosses: [{name: money, columns: [a, b], encode: vocabulary}]
    -> cross 'money' has the name of another cross or group
"""


def test_what_cannot_cross_is_refused() -> None:
    cross = {"name": "c", "encode": "vocabulary"}
    _check_refused(lambda fields: {"groups": [FARE], "crosses": [{**cross, **fields}]}, _CROSSES)


_CROSSES = r"""
columns: [company] -> cross 'c': columns=\['company'\]; give two or more different
columns: [a, b, a] -> give two or more different columns
columns: [a, b], encode: {integer: {size: 2}}
    -> encode: integer takes no combination of values; use encode: hash or vocabulary
columns: [a, b], share: true -> share\n  Extra inputs are not permitted
"""


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


def _group(**options: Any) -> Group:
    return Group.model_validate({"name": "g", "columns": ["x", "v[0]", "y*"], **options})


def test_what_a_missing_number_becomes() -> None:
    for options, filling in [
        ({"scale": "z_score"}, "mean"),
        ({"scale": "robust"}, "median"),
        ({"scale": "gaussian"}, "median"),
        ({"scale": "min_max", "clip": {"quantiles": [0.1, 0.9]}}, "median"),
        ({"scale": "robust", "impute": "mean"}, "mean"),
        ({"scale": "robust", "impute": {"constant": 3}}, 3.0),
    ]:
        assert _group(**options).filling == filling


def test_kind_and_names() -> None:
    group = _group(scale=["log1p", "z_score"])
    assert (group.kind, group.first, group.explicit) == ("log1p+z_score", "log1p", ("x",))
    assert (_group(scale="none").first, _group(encode="vocabulary").kind) == (None, "vocabulary")
