"""Declare the run-time parameters of `cluster.<target>.parameters` in a compiled pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject
from pipeline.config.config import PipelineConfig
from pipeline.targets.argument_length import LONGEST_ARGUMENT, as_size
from pipeline.targets.container_flags import DRIVER, RUN_TIME_PARAMETERS
from pipeline.targets.parameter_finder import ParameterFinder
from pipeline.targets.run_time_parameters import NodeParameters
from pipeline.targets.spec import ENTRY_POINT, executors, tasks
from pipeline.targets.spec_types import PipelineSpec


def declare_parameters(spec: PipelineSpec, parameters: NodeParameters) -> None:
    """Declare parameters in a pipelineSpec, in place, and pass them to the nodes.

    Raises:
        ConfigError: A node has a setting of a parameter's name, or the configuration does not fit
            into an argument of a process.
    """
    root = spec["root"].setdefault("inputDefinitions", {}).setdefault("parameters", {})
    for each in parameters.parameters:
        root[each.name] = {
            "parameterType": each.kind,
            "defaultValue": each.default,
            "isOptional": True,
            "description": f"{each.field} of the YAML",
        }
    for name, task in tasks(spec).items():
        own = [each for each in parameters.parameters if name in each.nodes]
        if not own:
            continue
        component = spec["components"][task["componentRef"]["name"]]
        inputs = task.setdefault("inputs", {}).setdefault("parameters", {})
        declared = component.setdefault("inputDefinitions", {}).setdefault("parameters", {})
        for each in own:
            if each.name in declared:
                raise ConfigError(
                    f"cluster.{parameters.target}.parameters: {each.field}: {name} has a setting "
                    f"of the name {each.name}. Leave it out."
                )
            inputs[each.name] = {"componentInputParameter": each.name}
            declared[each.name] = {"parameterType": each.kind}
        packed = parameters.model_copy(update={"node": name}).pack()
        if len(packed) >= LONGEST_ARGUMENT:
            raise ConfigError(
                f"cluster.{parameters.target}.parameters: the configuration has "
                f"{as_size(len(packed))} compressed, which {name} gets in one argument, of less "
                f"than {as_size(LONGEST_ARGUMENT)}. Leave the parameters out, or name columns by "
                "patterns."
            )
        container = executors(spec)[component["executorLabel"]]["container"]
        container["args"] = [*container["args"], RUN_TIME_PARAMETERS, packed]
        if driver := container.get("lifecycle", {}).get("preCacheCheck"):
            driver["command"] = list(ENTRY_POINT)
            driver["args"] = [*driver["args"], RUN_TIME_PARAMETERS, packed, DRIVER]


def parameter_declaration(
    config: PipelineConfig,
    graph: Mapping[str, str | None],
    target: Literal["kubeflow", "vertex"],
    fields: tuple[str, ...],
) -> Callable[[JsonObject], None] | None:
    """Return the function that declares fields as parameters in a pipelineSpec; None without any.

    Raises:
        ConfigError: Some fields cannot be parameters.
    """
    if not fields:
        return None
    parameters = ParameterFinder(config, graph, target).find(fields)
    return lambda spec: declare_parameters(spec, parameters)
