"""The parts of a pipelineSpec (schema 2.1.0) and of an ExecutorInput as JSON values, and flags.

The flags of a node's container are written by the compiler and read by its programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from pipeline.common.json_types import JsonObject, JsonValue

PipelineSpec: TypeAlias = JsonObject
JsonMapping: TypeAlias = Mapping[str, JsonValue]  # only read
Component: TypeAlias = JsonMapping
Container: TypeAlias = JsonObject
Executor: TypeAlias = JsonMapping
Task: TypeAlias = JsonObject
ExecutorInput: TypeAlias = JsonMapping
Artifact: TypeAlias = JsonObject
Manifest: TypeAlias = JsonObject  # of a TFJob
_PodSpec: TypeAlias = JsonObject  # a PodTemplateSpec or a KubernetesExecutorConfig

INVOCATION = "--json_serialized_invocation_args"
INPUTS_SPEC = "--json_serialized_inputs_spec_args"
OUTPUTS_SPEC = "--json_serialized_outputs_spec_args"
RUN_TIME_PARAMETERS = "--run_time_parameters"
"""With the run-time parameters that a node takes; absent if it takes none."""
DRIVER = "--run_driver"
"""Without a value: run TFX's driver of file-based ExampleGens in the executor's place."""


def take_option(arguments: list[str], flag: str) -> str | None:
    """Remove an option from arguments, in place, and return its value; None if it is not there."""
    if flag not in arguments:
        return None
    place = arguments.index(flag)
    value = arguments[place + 1]
    del arguments[place : place + 2]
    return value
