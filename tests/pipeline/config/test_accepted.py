"""A wrong value of any field of the YAML gets a message with field, value and a valid suggestion.

The fields come from the models' annotations; the messages from their JSON Schema. A suggestion is
the reference of itself: the field's own annotation must accept it.
"""

from __future__ import annotations

import collections.abc
import copy
import re
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pydantic
import pytest
import yaml
from pydantic import BaseModel

from pipeline.common.errors import ConfigError
from pipeline.config.config import PipelineConfig
from pipeline.config.config_errors import check_fields

SMALL = """\
name: small
data: {path: rows.csv}
features:
  groups:
    - {name: numbers, columns: [amount], scale: z_score}
  label: {column: bought, kind: binary}
training: {epochs: 1}
output: {folder: out}
"""
WRONG = [True, 7, 0.25, "some text", [["x"]], {"what": ["x"]}, None]
Keys = tuple[int | str, ...]


def alternatives(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) is Annotated:
        yield from alternatives(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for each in get_args(annotation):
            yield from alternatives(each)
    elif annotation is not type(None):
        yield annotation


WALKED: set[type[BaseModel]] = set()


def fields(model: type[BaseModel], above: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Yield the place of each field, of its elements and values, and its annotation.

    A model that is used in several places is walked at the first of them.
    """
    if model in WALKED:
        return
    WALKED.add(model)
    for name, field in model.model_fields.items():
        annotation = Annotated[(field.annotation, *field.metadata, "never empty")]
        yield from places(annotation, (*above, field.alias or name))


def places(annotation: Any, keys: Keys) -> Iterator[tuple[Keys, Any]]:
    yield keys, annotation
    for each in alternatives(annotation):
        origin, arguments = get_origin(each) or each, get_args(each)
        if not isinstance(origin, type):
            continue
        if issubclass(origin, BaseModel):
            yield from fields(each, keys)
        elif issubclass(origin, collections.abc.Mapping) and arguments:
            yield from places(arguments[1], (*keys, "auc"))
        elif issubclass(origin, tuple) and arguments:
            yield from places(arguments[0], (*keys, 0))


FIELDS = dict(fields(PipelineConfig))


def put(raw: Any, keys: Keys, value: object) -> Any:
    """Return values with one of them set, in place of what is above it if that is no section."""
    if not keys:
        return value
    key, *below = keys
    raw = raw or []
    if isinstance(key, int):
        return [put(raw[0] if isinstance(raw, list) and raw else None, tuple(below), value)]
    raw = raw if isinstance(raw, dict) else {}
    return {**raw, key: put(raw.get(key), tuple(below), value)}


def message(raw: Any, keys: Keys) -> str | None:
    """Return the line about a field."""
    with pytest.raises(ConfigError) as error:
        check_fields(PipelineConfig, raw, Path("f.yaml"))
    start = f"f.yaml: {'.'.join(map(str, keys))}"
    lines = str(error.value).splitlines()
    return next((each for each in lines if each.startswith((f"{start}=", f"{start}: "))), None)


def is_checked_by_pydantic(errors: list[Any]) -> bool:
    """Return whether every error is of a type, at the place of the value itself."""
    own = all(each["type"] not in ("value_error", "missing", "extra_forbidden") for each in errors)
    return own and not any(part in ("what", 0) for each in errors for part in each["loc"])


@pytest.mark.parametrize("section", PipelineConfig.model_json_schema()["properties"])
def test_a_wrong_type_gets_field_value_and_a_valid_suggestion(section):
    checked = 0
    for keys, annotation in FIELDS.items():
        adapter = pydantic.TypeAdapter(annotation)
        if keys[0] != section:
            continue
        base = yaml.safe_load(SMALL)
        for wrong in WRONG:
            try:
                adapter.validate_python(wrong)
                continue
            except pydantic.ValidationError as error:
                if not is_checked_by_pydantic(error.errors()):
                    continue
            text = message(put(copy.deepcopy(base), keys, wrong), keys)
            if text is None or "such as `" not in text:
                assert not OWN_MESSAGE.isdisjoint(keys), (keys, wrong, text)
                continue
            assert ("empty" if wrong is None else repr(wrong)) in text
            adapter.validate_python(yaml.safe_load(re.findall("such as `(.*)`\\.", text)[0]))
            checked += 1
    assert checked or section == "schema"


# Fields whose validator writes the message; it runs before pydantic's.
OWN_MESSAGE = {
    *("engine", "memory_budget", "class_weight", "global_batch_size", "metrics"),
    *("scale", "optimizer", "values", "project", "region", "temp_location"),
}


@pytest.mark.parametrize(
    ("field", "value", "facts"),
    [
        ("cluster", ["kubeflow"], ["mapping", "{kubeflow: {image: 'registry/name:1.0'"]),
        ("cluster.kubeflow.pod", ["gpu"], ["mapping", "nodeSelector: "]),
        (
            "cluster.kubeflow.secrets",
            {"mlpipeline-minio-artifact": "AWS_ACCESS_KEY_ID"},
            [".mlpipeline-minio-artifact='AWS_ACCESS_KEY_ID'", "{accesskey: AWS_"],
        ),
        ("cluster.kubeflow.resources.Trainer.cpu", "4 cores", ["'4 cores'", "above 0", "`4`"]),
        ("cluster.vertex", "x", ["'x'", "mapping with image, pipeline_root", "pipeline_root: "]),
        ("cluster.kubeflow.labels", {1: "a"}, [".labels.1: ", "key 1", "quotes: '1'"]),
        (
            "training.optimizer.learning_rate",
            "fast",
            ["'fast'", "a number", "`0.001`", "optimizer.schedule"],
        ),
        ("training.learning_rate", 0.1, ["unknown", "'training.optimizer.learning_rate'"]),
        ("training.eval_percent", 3, ["unknown", "'data.eval_percent'"]),
        ("tracking.mlflow", True, ["`http://host:5000`"]),
        ("cluster.kubeflow.pipeline_root", ..., ["missing", "`gs://bucket/folder`"]),
        ("data.eval_percent", 200, ["200", "at most 99", "`33`"]),
        ("features.label.column", 7, ["in quotes", "`'7'`"]),
    ],
)
def test_the_suggestion_has_the_form_of_the_field(field, value, facts):
    keys = tuple(int(each) if each.isdigit() else each for each in field.split("."))
    raw = put(yaml.safe_load(SMALL), keys, value)
    if value is ...:
        raw["cluster"]["kubeflow"] = {"image": "a/b:1"}
    elif value != ["kubeflow"] and keys[0] == "cluster" and len(keys) > 2 and keys[2] != "image":
        raw["cluster"]["kubeflow"].update(image="a/b:1", pipeline_root="gs://b/c")
    with pytest.raises(ConfigError) as error:
        check_fields(PipelineConfig, raw, Path("f.yaml"))
    first = str(error.value).splitlines()[0]
    assert field in first
    assert all(fact in first for fact in facts), first


NUMBERS = [
    keys
    for keys, annotation in FIELDS.items()
    if {int, float} & set(kinds := list(alternatives(annotation)))
    and not {bool, str, object} & set(kinds)
]


def test_true_and_false_are_no_numbers():
    """Pydantic takes them as 1 and 0, for every field of an int or a float."""
    assert len(NUMBERS) > 60
    for keys in NUMBERS:
        raw = yaml.safe_load(SMALL)
        for flag in (True, False):
            text = message(put(copy.deepcopy(raw), keys, flag), keys)
            assert text, (keys, flag)
            assert repr(flag) in text
