"""Convert the ExecutorInput of a platform to the one that TFX expects; flags of containers.

A platform adds outputs that no component declared, drops the types of artifacts, and gives outputs
the names in the compiled file. All functions take and return JSON values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from pipeline.common.json_types import JsonObject
from pipeline.targets.long_values import expand

INVOCATION = "--json_serialized_invocation_args"
INPUTS_SPEC = "--json_serialized_inputs_spec_args"
OUTPUTS_SPEC = "--json_serialized_outputs_spec_args"
RUN_TIME_PARAMETERS = "--run_time_parameters"
"""With the run-time parameters that a node takes; absent if it takes none."""
DRIVER = "--run_driver"
"""Without a value: run TFX's driver of file-based ExampleGens in the executor's place."""

_TYPE_FIELDS = ("instanceSchema", "schemaTitle")
_RENAMED = "output_"
_ANY_ARTIFACT = "pipeline.targets.unknown_artifact.UnknownArtifact"


def take_option(arguments: list[str], flag: str) -> str | None:
    """Remove an option from arguments, in place, and return its value; None if it is not there."""
    if flag not in arguments:
        return None
    place = arguments.index(flag)
    value = arguments[place + 1]
    del arguments[place : place + 2]
    return value


def output_names(declared: list[str]) -> dict[str, str]:
    """Return the compiled name of each output; none is a prefix of another.

    Kubeflow's launcher up to 2.16.1 downloads all objects whose names begin with an artifact's
    URI: for `model` it would also download `model_run` next to it.
    """
    return {
        name: _RENAMED * sum(name.startswith(other) for other in declared if other != name) + name
        for name in declared
    }


def prepare(
    executor_input: JsonObject,
    inputs: JsonObject | None,
    outputs: JsonObject | None,
    is_known: Callable[[str], bool],
) -> JsonObject:
    """Return the platform's ExecutorInput with only what the component declares.

    Without its specs of `inputs` or `outputs`, all is kept. `is_known`: whether TFX can import a
    type of this title.
    """
    sides = {side: {**executor_input.get(side, {})} for side in ("inputs", "outputs")}
    if values := sides["inputs"].get("parameterValues"):
        expanded = {k: expand(v) if isinstance(v, str) else v for k, v in values.items()}
        sides["inputs"]["parameterValues"] = _only(expanded, inputs, "parameters")
    if written := sides["outputs"].get("parameters"):
        sides["outputs"]["parameters"] = _only(written, outputs, "parameters")
    # Name in the compiled file -> the component's name.
    declared = list((outputs or {}).get("artifacts", {}))
    own_names = {compiled: own for own, compiled in output_names(declared).items()}
    for side, spec in (("inputs", inputs), ("outputs", outputs)):
        if "artifacts" in sides[side]:
            names: dict[str, str] = own_names if side == "outputs" else {}
            artifacts = {names.get(k) or k: each for k, each in sides[side]["artifacts"].items()}
            sides[side]["artifacts"] = {
                key: _with_types(key, each, spec, is_known)
                for key, each in _only(artifacts, spec, "artifacts").items()
            }
    return {**executor_input, **sides}


def restore_names(executor_output: JsonObject, handed_over: Collection[str]) -> JsonObject:
    """Return an ExecutorOutput of TFX with the names of the platform's ExecutorInput."""
    artifacts = executor_output.get("artifacts", {})
    names = {
        key: given
        for key in artifacts
        for given in handed_over
        if re.fullmatch(f"(?:{_RENAMED})*{re.escape(key)}", given)
    }
    return {
        **executor_output,
        "artifacts": {names.get(key, key): each for key, each in artifacts.items()},
    }


def _only(values: JsonObject, spec: JsonObject | None, kind: str) -> JsonObject:
    return {key: each for key, each in values.items() if spec is None or key in spec.get(kind, {})}


def _with_types(
    key: str, found: JsonObject, spec: JsonObject | None, is_known: Callable[[str], bool]
) -> JsonObject:
    declared = (spec or {}).get("artifacts", {}).get(key, {}).get("artifactType", {})
    artifacts = []
    for artifact in found.get("artifacts", []):
        kind = artifact.get("type", {})
        # A TFX type is kept; Kubeflow's driver changes every type to system.Artifact.
        if not kind.get("instanceSchema") and declared:
            kind = {field: each for field, each in declared.items() if field in _TYPE_FIELDS}
        title = kind.get("schemaTitle")
        if not any(kind.get(field) for field in _TYPE_FIELDS) or (title and not is_known(title)):
            kind = {"schemaTitle": _ANY_ARTIFACT}
        name = artifact.get("name") or artifact.get("uri", key)
        artifacts.append({**artifact, "type": kind, "name": name})
    return {**found, "artifacts": artifacts}
