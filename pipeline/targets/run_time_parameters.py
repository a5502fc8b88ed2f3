"""Run-time parameters: fields of the YAML that a run of a compiled pipeline may set.

A node that depends on such a field takes it as an input. Its container gets the configuration in
one argument, sets the values in it, checks it as `--set` does, builds the graph again and replaces
the execution properties that differ. The result equals a compile with these values.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import pydantic
from pydantic import BaseModel, ConfigDict

from components.arrow_example_gen.spans import has_placeholders
from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.config.config import PipelineConfig, is_remote
from pipeline.config.config_errors import check_fields
from pipeline.config.config_file import PATH_FIELDS, set_value
from pipeline.targets.container_flags import RUN_TIME_PARAMETERS
from pipeline.targets.graph_changes import StructureChanged, build_job, changed_properties
from pipeline.targets.long_values import compress, expand
from pipeline.targets.spec_types import ExecutorInput, JsonMapping, PipelineSpec

Scalar = bool | int | float | str
Kind = Literal["BOOLEAN", "NUMBER_INTEGER", "NUMBER_DOUBLE", "STRING"]
KINDS: dict[type, Kind] = {
    bool: "BOOLEAN",
    int: "NUMBER_INTEGER",
    float: "NUMBER_DOUBLE",
    str: "STRING",
}
LARGEST_INTEGER = 2**53
"""Platforms hand numbers over as doubles, which hold every integer up to this one."""
_WHERE = Path("run-time parameters")


class Parameter(BaseModel):
    """A field of the YAML that a run may set.

    Attributes:
        field: as in the YAML, `training.epochs`.
        kind: parameterType of the pipelineSpec.
        default: the field's value in the configuration.
        nodes: those whose execution properties depend on it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    field: str
    kind: Kind
    default: Scalar = pydantic.Field(union_mode="smart")
    nodes: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name in the compiled pipeline."""
        return parameter_name(self.field)

    def typed(self, value: JsonValue) -> Scalar:
        """Return a platform's value as a value of the declared type.

        Args:
            value: A JSON value; platforms pass an integer as 3 or as 3.0.

        Raises:
            ConfigError: The value has another type, or is an integer that a double cannot hold.
        """
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if self.kind == "NUMBER_INTEGER" and is_number and value == value // 1:
            if abs(value) <= LARGEST_INTEGER:
                return int(value)
        elif self.kind == "NUMBER_DOUBLE" and is_number:
            return float(value)
        elif KINDS.get(type(value)) == self.kind and not is_number:
            return value
        limit = f" of at most {LARGEST_INTEGER}" if self.kind == "NUMBER_INTEGER" else ""
        raise ConfigError(
            f"{_WHERE}: {self.field}={value!r}: not a {self.kind}{limit}. Give a value like the "
            f"default, {json.dumps(self.default)}."
        )


class NodeParameters(BaseModel):
    """What the container of a node needs to set its run-time parameters.

    Attributes:
        node: the node's name.
        target: where the pipeline runs.
        config: the configuration at the target as JSON values, without `cluster`.
        graph: further arguments of `create_pipeline`.
        parameters: all of the pipeline, those of other nodes too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    node: str
    target: Literal["kubeflow", "vertex"]
    config: JsonObject
    graph: dict[str, str | None]
    parameters: tuple[Parameter, ...]

    def pack(self) -> str:
        """Return the parameters packed into one command-line argument."""
        return compress(self.model_dump_json())

    @classmethod
    def unpack(cls, packed: str) -> NodeParameters:
        """Return the parameters that `pack` packed."""
        return cls.model_validate_json(expand(packed))

    def apply(self, executor_input: ExecutorInput) -> JsonObject:
        """Return the ExecutorInput with the execution properties that the values give.

        Args:
            executor_input: The platform's ExecutorInput as JSON values; long properties may be
                compressed.

        Raises:
            ConfigError: A value is wrong, or changes a node that did not depend on it at compile
                time.
        """
        inputs = {**executor_input.get("inputs", {})}
        given = dict(inputs.get("parameterValues", {}))
        values = {each.name: given.pop(each.name, None) for each in self._own()}
        inputs["parameterValues"] = {**given, **self._changed_properties(values)}
        return {**executor_input, "inputs": inputs}

    def configuration(self, values: JsonMapping) -> PipelineConfig:
        """Return the checked configuration with these values.

        Args:
            values: Parameter's name in the compiled pipeline -> value. Missing and null values keep
                their defaults.

        Raises:
            ConfigError: A value is wrong.
        """
        raw = self.with_values(self._overrides(values))
        config = check_fields(PipelineConfig, raw, _WHERE)
        if found := list(self._path_errors(values)):
            raise ConfigError("\n".join(f"{_WHERE}: {each}" for each in found))
        return config

    def with_values(self, values: Mapping[str, Scalar]) -> JsonObject:
        """Return the configuration with values of fields, as unchecked JSON values."""
        raw = copy.deepcopy(self.config)
        for field, value in values.items():
            set_value(raw, field, value, shown=f"{_WHERE}: {field}={value!r}")
        return raw

    def _own(self) -> list[Parameter]:
        return [each for each in self.parameters if self.node in each.nodes]

    def _overrides(self, values: JsonMapping) -> dict[str, Scalar]:
        """Return field -> value of those that differ from the default."""
        given = [(p, p.typed(values[p.name])) for p in self.parameters if _is_given(p, values)]
        return {parameter.field: value for parameter, value in given if value != parameter.default}

    def _changed_properties(self, values: JsonMapping) -> JsonObject:
        overrides = self._overrides(values)
        if not overrides:
            return {}
        before = build_job(self.configuration({}), self.graph)
        after = build_job(self.configuration(values), self.graph)
        text = ", ".join(f"{field}={value!r}" for field, value in overrides.items())
        compile_it = " ".join(f"--set {field}={value}" for field, value in overrides.items())
        advice = f"Compile the pipeline with {compile_it} instead."
        try:
            changed = changed_properties(before, after)
        except StructureChanged as error:
            raise ConfigError(f"{_WHERE}: {text}: changes {error}. {advice}") from None
        known = {n for p in self.parameters if p.field in overrides for n in p.nodes}
        if others := sorted(set(changed) - known):
            raise ConfigError(
                f"{_WHERE}: {text}: changes the settings of {', '.join(others)} too, which took "
                f"no part in it when the pipeline was compiled. {advice}"
            )
        return changed.get(self.node, {})

    def _path_errors(self, values: JsonMapping) -> Iterator[str]:
        paths = {".".join(keys) for keys in PATH_FIELDS}
        overrides = self._overrides(values)
        path, spans = overrides.get("data.path"), self.config.get("data", {}).get("spans", 1)
        if path is not None and spans > 1 and not has_placeholders(str(path)):
            yield (
                f"data.path={path!r}: data.spans is {spans}, and this has no {{SPAN}} and no date; "
                "put one into it (gs://bucket/{YYYY}-{MM}-{DD}/*.csv)."
            )
        for field, value in overrides.items():
            if field in paths and not is_remote(str(value)) and not Path(str(value)).is_absolute():
                yield (
                    f"{field}={value!r}: a path of the machine that started the run; name a place "
                    "that the cluster reads, such as gs://bucket/folder."
                )


def parameter_name(field: str) -> str:
    """Return the name in a compiled pipeline, such as `training_epochs` for `training.epochs`.

    Both platforms and their pages accept letters, digits and underscores.
    """
    return re.sub(r"[^A-Za-z0-9]+", "_", field)


def rename_as_declared(texts: Mapping[str, str], declared: JsonMapping) -> dict[str, str]:
    """Return the values under the names that a compiled pipeline declares.

    Args:
        texts: Name -> value; a field of the YAML (`training.epochs`) stands for its parameter.
        declared: The pipeline's parameters by name.
    """
    names = {name: parameter_name(name) for name in texts if name not in declared}
    return {
        names[name] if names.get(name) in declared else name: text for name, text in texts.items()
    }


def check_values(spec: PipelineSpec, values: JsonMapping) -> None:
    """Check the parameters of a run with the checks that the containers will run.

    Raises:
        ConfigError: A value is wrong.
    """
    for args, place in _packed(spec):
        NodeParameters.unpack(args[place]).configuration(values)
        return  # all have the same configuration and parameters


def _packed(node: JsonValue) -> Iterator[tuple[list[str], int]]:
    """Yield packed parameters: the arguments of a container or driver, and the index in them."""
    if isinstance(node, dict):
        args = node.get("args")
        if isinstance(args, list) and RUN_TIME_PARAMETERS in args:
            yield args, args.index(RUN_TIME_PARAMETERS) + 1
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for each in children:
        yield from _packed(each)


def _is_given(parameter: Parameter, values: JsonMapping) -> bool:
    return values.get(parameter.name) is not None
