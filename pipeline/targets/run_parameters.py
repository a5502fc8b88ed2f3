"""Run-time parameters: fields of the YAML that a run of a compiled pipeline may set.

Each field has places: a node, one of its execution properties, and the keys in the property's JSON.
The node takes the parameter as an input, and its container puts the value there before TFX reads
the properties, so that they equal those of a compile with this value.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from components.arrow_example_gen.spans import check_pattern, has_placeholders
from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.config.cluster import TargetConfig
from pipeline.config.config import PipelineConfig, is_remote
from pipeline.data.data_sources import place
from pipeline.graph.node_names import NodeName
from pipeline.targets.compiled_spec import CompiledSpec
from pipeline.targets.executor_input import DRIVER, RUN_TIME_PARAMETERS
from pipeline.targets.long_values import expand
from pipeline.targets.spec import ENTRY_POINT, containers, tasks
from shared_core.nearest import nearest
from trainer_module import TrainerConfig

_KINDS = {bool: "BOOLEAN", int: "NUMBER_INTEGER", float: "NUMBER_DOUBLE", str: "STRING"}
_EXAMPLES = {"NUMBER_INTEGER": "3", "NUMBER_DOUBLE": "0.5", "BOOLEAN": "true", "STRING": "text"}
# Platforms hand numbers over as doubles, which hold every integer up to this one.
_LARGEST_INTEGER = 2**53
_TRAINING = (
    *("epochs", "steps", "global_batch_size", "micro_batch_size", "seed", "clip_norm"),
    *("shuffle_buffer_rows", "checkpoint_every_minutes", "model.dropout"),
    *("optimizer.learning_rate", "optimizer.weight_decay", "early_stopping.patience_epochs"),
)
_FIELDS = (
    *("data.path", *(f"training.{key}" for key in _TRAINING)),
    "nodes.N.parameters.NAME",
)
_NODE_PARAMETER = re.compile(r"nodes\.(\d+)\.parameters\.(\w+)")


class _Parameter(NamedTuple):
    """A parameter of a node; `keys` lead to its value in the JSON of an execution property."""

    field: str
    kind: str
    property: str
    keys: list[str | int]
    source: str  # of the rows, which decides how `data.path` is split

    def changed(self, properties: JsonObject, value: JsonValue) -> JsonObject:
        """Return the execution properties that differ with a value, an integer as 3 or as 3.0."""
        value = _typed(f"run-time parameters: {self.field}", value, self.kind)
        if self.field != "data.path":
            text = properties[self.property]
            return {self.property: _put(text, self.keys, value) if self.keys else value}
        _check_path(value, has_window=bool(properties.get("range_config")))
        folder, pattern = place(value, self.field, source=self.source)  # pyright: ignore[reportArgumentType]
        config = _put(properties[self.property], self.keys, pattern)
        return {"input_base": folder, self.property: config}


def _typed(name: str, value: JsonValue, kind: str) -> JsonValue:
    """Return a platform's value as one of the declared type."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "NUMBER_INTEGER" and is_number and value == value // 1:
        if abs(value) <= _LARGEST_INTEGER:
            return int(value)
    elif kind == "NUMBER_DOUBLE" and is_number and math.isfinite(value):
        return float(value)
    elif _KINDS.get(type(value)) == kind and not is_number:
        return value
    limit = f" of at most {_LARGEST_INTEGER}" if kind == "NUMBER_INTEGER" else ""
    raise ConfigError(
        f"{name}={value!r}: not a {kind}{limit}. Give a value such as {_EXAMPLES.get(kind, kind)}."
    )


def declare_parameters(spec: JsonObject, config: PipelineConfig, profile: TargetConfig) -> None:
    """Declare the fields of `parameters` in a pipelineSpec, in place, and pass them to the nodes.

    A ConfigError names all fields that cannot be parameters, with the reasons.
    """
    reasons: list[str] = []
    taken: dict[str, list[_Parameter]] = {}
    names: dict[str, str] = {}
    values = config.model_dump(mode="json", by_alias=True)
    for field in profile.parameters:
        name = _parameter_name(field)
        try:
            if name in names:
                raise ConfigError(f"named {name}, as {names[name]} is: name one of them.")
            names[name] = field
            default = _default(values, field)
            places = [each for each in _places(config, field) if _has_value(spec, *each)]
            if default is None or not places:
                raise ConfigError("no value in the YAML. Write the default there.")
            for node, property_, keys in places:
                kind = _KINDS[type(default)]
                parameter = _Parameter(field, kind, property_, keys, config.data.source)
                taken.setdefault(node, []).append(parameter)
                _declare(spec, node, parameter, default)
        except ConfigError as error:
            reasons.append(f"{profile.section}.parameters: {field}: {error}")
    if reasons:
        raise ConfigError("\n".join(reasons))
    for node, parameters in taken.items():
        container = containers(spec)[tasks(spec)[node]["componentRef"]["name"]]
        packed = json.dumps(parameters)
        container["args"] = [*container["args"], RUN_TIME_PARAMETERS, packed]
        if driver := container.get("lifecycle", {}).get("preCacheCheck"):
            driver["command"] = list(ENTRY_POINT)
            driver["args"] = [*driver["args"], RUN_TIME_PARAMETERS, packed, DRIVER]


def _declare(spec: JsonObject, node: str, parameter: _Parameter, default: JsonValue) -> None:
    task, name = tasks(spec)[node], _parameter_name(parameter.field)
    component = spec["components"][task["componentRef"]["name"]]
    for part in (spec["root"], component):
        part.setdefault("inputDefinitions", {}).setdefault("parameters", {})
    kind = {"parameterType": parameter.kind}
    about = {"description": f"{parameter.field} of the YAML", "isOptional": True}
    root = spec["root"]["inputDefinitions"]["parameters"]
    root[name] = {**kind, **about, "defaultValue": default}
    component["inputDefinitions"]["parameters"][name] = kind
    task["inputs"]["parameters"][name] = {"componentInputParameter": name}


def _default(values: JsonObject, field: str) -> JsonValue:
    """Return the field's value in the configuration."""
    node: JsonValue = values
    for key in field.split("."):
        node = dict(enumerate(node)) if isinstance(node, list) else node
        node = node.get(int(key) if key.isdigit() else key) if isinstance(node, dict) else None
    if isinstance(node, dict | list):
        raise ConfigError("a section or a list. Name a field with one value.")
    if node is not None and isinstance(node, int) and abs(node) > _LARGEST_INTEGER:
        raise ConfigError(
            f"its value {node} is above {_LARGEST_INTEGER}, the largest integer that platforms "
            "hand over exactly. Use a smaller one."
        )
    return node


def _places(config: PipelineConfig, field: str) -> list[tuple[str, str, list[str | int]]]:
    """Return node, execution property and keys of each place that a field may have."""
    section, _, key = field.partition(".")
    if field == "data.path":
        if config.data.eval_path:
            raise ConfigError("with data.eval_path no run can set it. Leave it out.")
        return [(NodeName.EXAMPLE_GEN, "input_config", ["splits", 0, "pattern"])]
    if section == "training" and key in _TRAINING:
        keys: list[str | int] = ["trainer", *key.split(".")]
        return [(node, "custom_config", keys) for node in (NodeName.TRAINER, NodeName.TUNER)]
    if (match := _NODE_PARAMETER.fullmatch(field)) and int(match[1]) < len(config.nodes):
        return [(config.nodes[int(match[1])].id, match[2], [])]
    raise ConfigError(f"a run cannot set it; {nearest(field, _FIELDS)}")


def _has_value(spec: JsonObject, node: str, name: str, keys: list[str | int]) -> bool:
    inputs = tasks(spec).get(node, {}).get("inputs", {}).get("parameters", {})
    text = inputs.get(name, {}).get("runtimeValue", {}).get("constant")
    try:
        if keys and text is not None:
            _at(json.loads(expand(text)), keys)
    except (LookupError, TypeError):
        return False
    return text is not None


def _at(node: JsonValue, keys: Iterable[str | int]) -> Any:
    for key in keys:
        node = node[key]
    return node


def _put(text: str, keys: list[str | int], value: JsonValue) -> str:
    """Return JSON with another value at the keys, in the form of TFX's compiler."""
    content = json.loads(expand(text))
    _at(content, keys[:-1])[keys[-1]] = value
    return json.dumps(content, sort_keys=True, indent=2 if "\n" in text else None)


def _check_path(path: str, *, has_window: bool) -> None:
    try:
        check_pattern(path)
    except ValueError as error:
        raise ConfigError(f"run-time parameters: data.path={error}.") from None
    reason = ""
    if has_window and not has_placeholders(path):
        reason = "data.spans is above 1; put {SPAN} or {YYYY}-{MM}-{DD} into it."
    if not is_remote(path) and not Path(path).is_absolute():
        reason = "a path of the machine that started the run; use gs://bucket/folder/file.csv."
    if reason:
        raise ConfigError(f"run-time parameters: data.path={path!r}: {reason}")


def set_parameters(executor_input: JsonObject, packed: str) -> JsonObject:
    """Return the ExecutorInput of a node with the values of its parameters in its properties.

    `packed` is the value of `--run_time_parameters`. A ConfigError: a value is wrong.
    """
    inputs = {**executor_input.get("inputs", {})}
    values = dict(inputs.get("parameterValues", {}))
    trainer = False
    for parameter in (_Parameter(*each) for each in json.loads(packed)):
        value = values.pop(_parameter_name(parameter.field), None)
        if value is not None:
            values |= parameter.changed(values, value)
            trainer |= parameter.field.startswith("training.")
    if trainer:
        try:
            TrainerConfig.parse(json.loads(values["custom_config"])["trainer"], section="training")
        except ValueError as error:
            raise ConfigError(f"run-time parameters: {error}") from None
    return {**executor_input, "inputs": {**inputs, "parameterValues": values}}


def _parameter_name(field: str) -> str:
    """Return the name in a compiled pipeline, such as `training_epochs` for `training.epochs`."""
    return re.sub(r"[^A-Za-z0-9]+", "_", field)


def values_of(compiled: CompiledSpec, texts: Mapping[str, str]) -> JsonObject:
    """Return the value of every parameter: from `texts`, from the compiled job, or its default.

    Keys of `texts` are names, or fields of the YAML (`training.epochs`). A ConfigError: an unknown
    parameter, one without a value, or a value that its type or its node does not accept.
    """
    declared = compiled.spec["root"].get("inputDefinitions", {}).get("parameters", {})
    texts = {declared_name(name, declared): text for name, text in texts.items()}
    if unknown := [name for name in texts if name not in declared]:
        there = f"it has {', '.join(declared)}" if declared else "it has none"
        raise ConfigError(
            f"--parameter {unknown[0]}: the pipeline has no parameter of this name; {there}."
        )
    values = {}
    for name, each in declared.items():
        kind = each.get("parameterType", "STRING")
        if name in texts:
            values[name] = _from_text(name, texts[name], kind)
        elif name in compiled.parameters:
            values[name] = compiled.parameters[name]
        elif "defaultValue" in each:
            values[name] = each["defaultValue"]
    # Set the parameters of every node as its container will, so that errors come before a run.
    nodes = containers(compiled.spec)
    for task in tasks(compiled.spec).values():
        args = nodes.get(task["componentRef"]["name"], {}).get("args", [])
        if RUN_TIME_PARAMETERS in args:
            given = {
                name: source.get("runtimeValue", {}).get("constant", values.get(name))
                for name, source in task["inputs"]["parameters"].items()
            }
            packed = args[args.index(RUN_TIME_PARAMETERS) + 1]
            set_parameters({"inputs": {"parameterValues": given}}, packed)
    return values


def declared_name(name: str, declared: JsonObject) -> str:
    """Return the parameter that a name, perhaps the field of the YAML, stands for."""
    renamed = _parameter_name(name)
    return renamed if name not in declared and renamed in declared else name


def given_parameters(texts: Iterable[str]) -> dict[str, str]:
    """Return the names and texts of `--parameter NAME=VALUE`; an empty text is a value."""
    return dict(
        name_and_value(each, "--parameter", "name=value", may_be_empty=True) for each in texts
    )


def name_and_value(
    text: str, flag: str, example: str, *, may_be_empty: bool = False
) -> tuple[str, str]:
    """Return the two parts of `name=value`; flag and example are for the error without them."""
    name, equals, value = text.partition("=")
    if not (name and equals and (value or may_be_empty)):
        raise ConfigError(f"{flag} {text}: give two parts with = between, as in {flag} {example}.")
    return name, value


def _from_text(name: str, text: str, kind: str) -> JsonValue:
    try:
        value = text if kind == "STRING" else json.loads(text.lower())
    except ValueError:
        value = text
    return _typed(f"--parameter {name}", value, kind)
