"""Spans, versions and dates of a path, on local folders; reference: TFX's own driver code."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tfx.components.example_gen import utils
from tfx.proto import example_gen_pb2, range_config_pb2
from tfx.types import standard_artifacts
from tfx.utils import proto_utils

from components import ArrowExampleGen
from components.arrow_example_gen.executor import _resolve_input, _SpanProcessor
from components.arrow_example_gen.spans import (
    SEPARATOR,
    _find_spans,
    check_pattern,
    latest_spans,
)

_PROTO: Any = example_gen_pb2
_RANGE: Any = range_config_pb2


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("a\n1\n")


def window(folder: Path, pattern: str, **options: Any) -> list[str]:
    spans = latest_spans(str(folder), {"all": pattern}, glob.glob, **options)["all"]
    return [span.pattern for span in spans]


def test_the_latest_span_is_chosen_by_number(tmp_path):
    for number, (names, pattern, latest) in enumerate(
        (
            (["span-10/a", "span-9/a", "span-2/a"], "span-{SPAN}/*", "span-10/*"),
            (["s07/a", "s08/a"], "s{SPAN:2}/a", "s08/a"),
            (["s1/v2/a", "s2/v1/a", "s2/v10/a", "s2/v9/a"], "s{SPAN}/v{VERSION}/*", "s2/v10/*"),
            (["2024-02-29/a", "2023-12-31/a"], "{YYYY}-{MM}-{DD}/a", "2024-02-29/a"),
            (["20240229-v3", "20240229-v1"], "{YYYY}{MM}{DD}-v{VERSION}", "20240229-v3"),
            (["s1/a", "s2-backup/a", "sx/a"], "s{SPAN}/a", "s1/a"),
        )
    ):
        make(tmp_path / str(number), *names)
        assert window(tmp_path / str(number), pattern) == [latest]


def test_a_window_is_of_numbers_and_leaves_out_those_without_files(tmp_path):
    make(tmp_path, "s9/v1/a", "s9/v2/a", "s10/v1/a", "s12/v1/a", "s7/v1/a")
    pattern = "s{SPAN}/v{VERSION}/*"
    assert window(tmp_path, pattern, count=4) == ["s9/v2/*", "s10/v1/*", "s12/v1/*"]
    assert window(tmp_path, pattern, count=99, first=10) == ["s10/v1/*", "s12/v1/*"]
    assert window(tmp_path, pattern, count=2, last=10) == ["s9/v2/*", "s10/v1/*"]
    make(tmp_path, "day=2024-03-01/a", "day=2024-02-29/a", "day=2024-02-27/a")
    days = window(tmp_path, "day={YYYY}-{MM}-{DD}/a", count=3)
    assert days == ["day=2024-02-29/a", "day=2024-03-01/a"]


def test_without_a_span_the_error_names_the_pattern_and_what_is_there(tmp_path):
    make(tmp_path, "span_1/a", "old/a")
    with pytest.raises(ValueError, match=r"/span-\{SPAN\}/\*: there is no span; .* has old, sp"):
        window(tmp_path, "span-{SPAN}/*")
    with pytest.raises(ValueError, match="none is empty or not there"):
        window(tmp_path / "none", "{SPAN}/*")
    make(tmp_path, "span-3/a")
    with pytest.raises(ValueError, match="no span from 4 to 5; there are spans 3"):
        window(tmp_path, "span-{SPAN}/*", count=2, last=5)


def test_what_is_ambiguous_or_no_date_is_refused(tmp_path):
    make(tmp_path, "s3/a", "s03/a", "2024-02-30/a")
    with pytest.raises(ValueError, match=r"s03/a and s3/a are the same span 3"):
        window(tmp_path, "s{SPAN}/a")
    with pytest.raises(ValueError, match="2024-02-30 is not a date"):
        window(tmp_path, "{YYYY}-{MM}-{DD}/a")


def test_placeholders_that_contradict_each_other_are_refused():
    for pattern, message in (
        ("{SPAN}/{SPAN}", "twice"),
        ("{SPAN}/{YYYY}{MM}{DD}", "either"),
        ("{YYYY}-{MM}/a", "add {DD}"),
        ("{VERSION}/a", "add {SPAN} or a date"),
        ("{SPAN:0}/a", "1 or more"),
        ("{YYYY:4}{MM}{DD}", "a width is for"),
    ):
        with pytest.raises(ValueError, match=message):
            check_pattern(pattern)


def test_splits_have_the_same_latest_span(tmp_path):
    make(tmp_path, "train/1/a", "train/2/a", "eval/1/a")
    patterns = {"train": "train/{SPAN}/*", "eval": "eval/{SPAN}/*"}
    with pytest.raises(ValueError, match=r"train/2/\* of train and .*eval/1/\* of eval; give each"):
        latest_spans(str(tmp_path), patterns, glob.glob)
    make(tmp_path, "eval/2/a")
    found = latest_spans(str(tmp_path), patterns, glob.glob, count=2)
    assert [span.pattern for span in found["eval"]] == ["eval/1/*", "eval/2/*"]


PATTERNS = ("s{SPAN}/v{VERSION}/*.csv", "s{SPAN:3}/v{VERSION:2}/*.csv")


@settings(max_examples=25)
@given(
    files=st.sets(st.tuples(st.integers(0, 200), st.integers(0, 20)), min_size=1, max_size=8),
    padded=st.booleans(),
)
def test_tfx_chooses_the_same_span_and_version(tmp_path_factory, files, padded):
    folder = tmp_path_factory.mktemp("spans")
    for span, version in files:
        make(folder, f"s{span:03}/v{version:02}/a.csv" if padded else f"s{span}/v{version}/a.csv")
    split = _PROTO.Input.Split(name="all", pattern=PATTERNS[padded])
    found = _find_spans(str(folder), split.pattern, glob.glob)[-1]
    fingerprint, span, version = utils.calculate_splits_fingerprint_span_and_version(
        str(folder), [split]
    )
    assert (found.number, found.version, found.pattern) == (span, version, split.pattern)
    ours = _SpanProcessor(
        str(folder), [_PROTO.Input.Split(name="all", pattern=PATTERNS[padded])], None
    )
    assert ours.resolve_span_and_version() == (span, version)
    assert ours.get_input_fingerprint(span, version) == fingerprint


def example_gen(folder: Path, pattern: str, spans: int | None = None) -> Any:
    window = spans and _RANGE.RangeConfig(rolling_range=_RANGE.RollingRange(num_spans=spans))
    return ArrowExampleGen(
        input_base=str(folder),
        input_config=_PROTO.Input(splits=[_PROTO.Input.Split(name="all", pattern=pattern)]),
        range_config=window,
    )


def test_where_no_driver_ran_the_examples_get_what_the_driver_writes(tmp_path):
    make(tmp_path, "s4/a", "s5/a", "s5/b")
    node = example_gen(tmp_path, "s{SPAN}/*", spans=2)
    examples = standard_artifacts.Examples()
    found = _resolve_input(node.exec_properties, examples)
    config = proto_utils.json_to_proto(found["input_config"], _PROTO.Input())
    assert config.splits[0].pattern.split(SEPARATOR) == ["s4/*", "s5/*"]
    assert found["span"] == 5
    assert found["version"] is None
    properties = examples.mlmd_artifact.custom_properties
    assert properties["span"].int_value == 5
    fingerprint = properties["input_fingerprint"].string_value.splitlines()
    assert [line.split(",")[1] for line in fingerprint] == ["num_files:1", "num_files:2"]
    assert "{SPAN}" in node.exec_properties["input_config"]


def test_a_range_without_spans_is_refused(tmp_path):
    make(tmp_path, "a.csv")
    node = example_gen(tmp_path, "a.csv", spans=2)
    with pytest.raises(ValueError, match=r"no pattern has \{SPAN\} or a date"):
        _resolve_input(node.exec_properties, standard_artifacts.Examples())
