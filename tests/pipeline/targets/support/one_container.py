"""A compiled pipeline of one container, `Write`, with what a test adds to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ARTIFACT = {"schemaTitle": "system.Artifact"}
OUT = "{{$.outputs.artifacts['out'].path}}"


def spec_of(
    command: list[str],
    args: Any = (OUT,),
    inputs: dict[str, Any] | None = None,
    env: dict[str, str] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return the pipelineSpec.

    Args:
        command: The container's command.
        args: Its arguments.
        inputs: Its constant inputs.
        env: Its variables.
        more: `parameters` of the pipeline with their defaults, which the container takes too;
            `outputs` (artifacts) and `output_parameters` (with their types) of the container;
            more `tasks`, `components` and `executors`.
    """
    variables = [{"name": name, "value": value} for name, value in (env or {}).items()]
    container = {"image": "x:1", "command": command, "args": list(args), "env": variables}
    parameters = more.get("parameters", {})
    taken = {key: {"componentInputParameter": key} for key in parameters}
    taken |= {key: {"runtimeValue": {"constant": each}} for key, each in (inputs or {}).items()}
    outputs, written = more.get("outputs", ("out",)), more.get("output_parameters", {})
    component = {
        "executorLabel": "x",
        "outputDefinitions": {
            "artifacts": {key: {"artifactType": ARTIFACT} for key in outputs},
            "parameters": {key: {"parameterType": kind} for key, kind in written.items()},
        },
    }
    task = {"componentRef": {"name": "write"}, "inputs": {"parameters": taken}}
    defaults = {key: {"defaultValue": value} for key, value in parameters.items()}
    return {
        "pipelineInfo": {"name": "one"},
        "root": {
            "inputDefinitions": {"parameters": defaults},
            "dag": {"tasks": {"Write": task, **more.get("tasks", {})}},
        },
        "components": {"write": component, **more.get("components", {})},
        "deploymentSpec": {
            "executors": {"x": {"container": container}, **more.get("executors", {})}
        },
    }


def write_spec(folder: Path, spec: dict[str, Any]) -> Path:
    path = folder / "spec.yaml"
    path.write_text(json.dumps(spec))
    return path
