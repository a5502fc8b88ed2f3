"""Find the nodes that depend on a run-time parameter, and fields that cannot be one.

The graph is built with other valid values of the field. A node that does not depend on the field
does not take it as an input, and so stays in the platform's cache.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

import pydantic

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.config.config import PipelineConfig
from pipeline.targets.graph_changes import StructureChanged, build_job, changed_properties
from pipeline.targets.run_time_parameters import (
    KINDS,
    LARGEST_INTEGER,
    NodeParameters,
    Parameter,
    Scalar,
    parameter_name,
)

# A compiled file names machines, images and processes, which a run can no longer change.
_OF_THE_FILE = {
    "cluster": "it is what the file is compiled from",
    "training.workers": "the compiled file names the machines",
    "training.strategy": "the compiled file names the machines",
}
Changed = dict[str, JsonObject]


class _Probe(NamedTuple):
    """Another valid value of a field, and the execution properties that it changes, by node."""

    value: Scalar
    changed: Changed


class ParameterFinder:
    """Finds the types of the fields in `parameters`, and the nodes that depend on them."""

    def __init__(
        self,
        config: PipelineConfig,
        graph: Mapping[str, str | None],
        target: Literal["kubeflow", "vertex"],
    ) -> None:
        """Build the graph of the configuration at the target.

        Raises:
            ConfigError: The configuration changes when it is written as JSON.
        """
        self._section = f"cluster.{target}.parameters"
        self._values = config.model_dump(mode="json", by_alias=True)
        raw = config.model_dump(mode="json", by_alias=True, exclude_unset=True)
        raw.pop("cluster", None)
        self._all = NodeParameters(
            node="", target=target, config=raw, graph=dict(graph), parameters=()
        )
        self._config = self._all.configuration({})
        if self._config != config.model_copy(update={"cluster": None}):
            raise ConfigError(
                f"{self._section}: the configuration is not the same after it is written as JSON, "
                "as the nodes read it. Leave the parameters out, and report this as a defect."
            )
        self._before = build_job(self._config, graph)

    def find(self, fields: tuple[str, ...]) -> NodeParameters:
        """Return the parameters, not yet assigned to a node.

        Raises:
            ConfigError: Some fields cannot be parameters. Names all of them with the reasons.
        """
        reasons, parameters, probes = [], [], {}
        for field in fields:
            try:
                parameter = self._parameter(field, parameters)
                probes[field] = self._probes(parameter)
            except ConfigError as error:
                reasons.append(f"{self._section}: {field}: {error}")
            else:
                nodes = {node for probe in probes[field] for node in probe.changed}
                parameters.append(parameter.model_copy(update={"nodes": tuple(sorted(nodes))}))
        if reasons:
            raise ConfigError("\n".join(reasons))
        parameters = self._with_joint_effects(parameters, probes)
        return self._all.model_copy(update={"parameters": tuple(parameters)})

    def _parameter(self, field: str, others: list[Parameter]) -> Parameter:
        value = self._default(field)
        for other in others:
            if other.name == parameter_name(field):
                raise ConfigError(
                    f"named {other.name} in the compiled pipeline, as {other.field} is: name one "
                    "of them."
                )
        if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
            raise ConfigError(
                f"its value {value} is above {LARGEST_INTEGER}, the largest integer that "
                "platforms hand over exactly. Use a smaller one."
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"its value {value} cannot be handed over. Use a finite number.")
        parameter = Parameter(field=field, kind=KINDS[type(value)], default=value, nodes=())
        # A field in a section that the YAML omits may have no place where it can be set.
        if self._try_values({field: value}) != self._config:
            raise ConfigError("not in the YAML. Write it there, with the default as its value.")
        return parameter

    def _default(self, field: str) -> Scalar:
        for start, reason in _OF_THE_FILE.items():
            if field == start or field.startswith(f"{start}."):
                raise ConfigError(f"a run cannot set it: {reason}. Leave it out.")
        node: JsonValue = self._values
        for key in field.split("."):
            if isinstance(node, list):
                node = dict(zip(map(str, itertools.count()), node, strict=False))
            if not isinstance(node, dict) or key not in node:
                near = difflib.get_close_matches(field, list(_fields(self._values)), n=1)
                hint = f" Did you mean {near[0]}?" if near else ""
                raise ConfigError(f"no such field.{hint}")
            node = node[key]
        if node is None:
            raise ConfigError("no value in the YAML. Write the default there.")
        if isinstance(node, dict | list):
            inside = next(_fields(node), None)
            hint = f"a value in it, such as {field}.{inside}" if inside else "a field with a value"
            raise ConfigError(f"a section or a list. Name {hint}.")
        return node

    def _probes(self, parameter: Parameter) -> list[_Probe]:
        found, why = [], ""
        for value in self._candidates(parameter):
            config = self._try_values({parameter.field: value})
            if isinstance(config, str):
                why = config
                continue
            try:
                after = build_job(config, self._all.graph)
                found.append(_Probe(value, changed_properties(self._before, after)))
            except StructureChanged as error:
                raise ConfigError(
                    f"the value {value!r} changes {error}, which a run cannot change. Leave it "
                    "out, and compile the pipeline with --set."
                ) from None
            except ConfigError as error:
                why = str(error)
        if not found:
            raise ConfigError(f"no other valid value was found ({why}). Leave it out.")
        if not any(probe.changed for probe in found):
            raise ConfigError("no node depends on it. Leave it out.")
        return found

    def _candidates(self, parameter: Parameter) -> Iterator[Scalar]:
        """Yield other values of a field; some may be invalid."""
        value = parameter.default
        found: list[Scalar]
        if isinstance(value, bool):
            found = [not value]
        elif isinstance(value, int | float):
            # 0 and 1 turn settings off; a node may depend only on that.
            numbers = (value + 1, value - 1, value * 2, value / 2, 0, 1, -value)
            found = [type(value)(number) for number in numbers]
        else:
            folder, slash, name = value.rpartition("/")
            longer = [f"{value}x", f"{folder}x{slash}x{name}"]
            found = [*self._choices(parameter.field, longer[0]), *longer]
        yield from (other for other in dict.fromkeys(found) if other != value)

    def _choices(self, field: str, wrong: str) -> Iterator[str]:
        """Yield the accepted values if the field takes one of a few texts."""
        try:
            PipelineConfig.model_validate(self._all.with_values({field: wrong}))
        except pydantic.ValidationError as error:
            for each in error.errors():
                if each["type"] == "literal_error":
                    yield from re.findall(r"'([^']*)'", each.get("ctx", {}).get("expected", ""))

    def _try_values(self, values: Mapping[str, Scalar]) -> PipelineConfig | str:
        """Return the configuration with these values, or the reason why it is invalid."""
        try:
            return PipelineConfig.model_validate(self._all.with_values(values))
        except pydantic.ValidationError as error:
            return error.errors()[0]["msg"].removeprefix("Value error, ")
        except ConfigError as error:
            return str(error)

    def _with_joint_effects(
        self, parameters: list[Parameter], probes: Mapping[str, list[_Probe]]
    ) -> list[Parameter]:
        """Add nodes that depend on a parameter only if another parameter has another value."""
        nodes = {parameter.field: set(parameter.nodes) for parameter in parameters}
        for first, second in itertools.combinations(probes, 2):
            one, two = _widest(probes[first]), _widest(probes[second])
            config = self._try_values({first: one.value, second: two.value})
            if isinstance(config, str):
                continue
            try:
                both = changed_properties(self._before, build_job(config, self._all.graph))
            except StructureChanged as error:
                raise ConfigError(
                    f"{self._section}: {first}={one.value!r} with {second}={two.value!r} changes "
                    f"{error}, which a run cannot change. Leave one of them out."
                ) from None
            for node in {*both, *one.changed, *two.changed}:
                takes_first, takes_second = node in nodes[first], node in nodes[second]
                alone = (one if takes_first else two).changed.get(node, {})
                if not (takes_first and takes_second) and both.get(node, {}) != alone:
                    nodes[first].add(node)
                    nodes[second].add(node)
        return [
            parameter.model_copy(update={"nodes": tuple(sorted(nodes[parameter.field]))})
            for parameter in parameters
        ]


def _fields(node: JsonValue, above: str = "") -> Iterator[str]:
    """Yield the paths of the scalars below a section or a list."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, each in items:
        if isinstance(each, dict | list):
            yield from _fields(each, f"{above}{key}.")
        elif each is not None:
            yield f"{above}{key}"


def _widest(probes: list[_Probe]) -> _Probe:
    """Return the value that changes the most nodes."""
    return max(probes, key=lambda probe: len(probe.changed))
