"""Convert the ExecutorInput of a platform to the one that TFX expects.

A platform adds outputs that no component declared, drops the types of artifacts, and gives outputs
the names in the compiled file. All functions take and return JSON values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from pipeline.common.json_types import JsonObject
from pipeline.targets.long_values import expand_properties
from pipeline.targets.spec_types import ExecutorInput, JsonMapping

_TYPE_FIELDS = ("instanceSchema", "schemaTitle")
_RENAMED = "output_"
_ANY_ARTIFACT = "pipeline.targets.unknown_artifact.UnknownArtifact"


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
    executor_input: ExecutorInput,
    inputs: JsonMapping | None,
    outputs: JsonMapping | None,
    is_known: Callable[[str], bool],
) -> JsonObject:
    """Return the ExecutorInput with only what the component declares.

    Args:
        executor_input: The ExecutorInput of the platform.
        inputs: The component's ComponentInputsSpec; None: unknown, keep all.
        outputs: The component's ComponentOutputsSpec; None: unknown, keep all.
        is_known: Whether TFX can import a type of this title.
    """
    found = {**executor_input}
    names = _declared_names(outputs)
    given = {**found.get("inputs", {})}
    made = {**found.get("outputs", {})}
    if "parameterValues" in given:
        values = expand_properties(given["parameterValues"])
        given["parameterValues"] = _only(values, inputs, "parameters")
    for side, spec in ((given, inputs), (made, outputs)):
        if "artifacts" in side:
            artifacts: JsonObject = side["artifacts"]
            if side is made:
                artifacts = {names.get(key, key): each for key, each in artifacts.items()}
            artifacts = _only(artifacts, spec, "artifacts")
            side["artifacts"] = {
                key: _with_types(key, each, spec, is_known) for key, each in artifacts.items()
            }
    if "parameters" in made:
        made["parameters"] = _only(made["parameters"], outputs, "parameters")
    return {**found, "inputs": given, "outputs": made}


def restore_names(executor_output: JsonMapping, handed_over: Collection[str]) -> JsonObject:
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


def _declared_names(outputs: JsonMapping | None) -> dict[str, str]:
    """Return name in the compiled file -> the component's name."""
    declared = list((outputs or {}).get("artifacts", {}))
    return {compiled: own for own, compiled in output_names(declared).items()}


def _only(values: JsonMapping, spec: JsonMapping | None, kind: str) -> JsonObject:
    if spec is None:
        return dict(values)
    declared = spec.get(kind, {})
    return {key: each for key, each in values.items() if key in declared}


def _with_types(
    key: str, found: JsonMapping, spec: JsonMapping | None, is_known: Callable[[str], bool]
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
