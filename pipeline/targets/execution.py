"""How one task of a compiled pipeline is executed: by a container, a resolver, or an importer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.targets.artifact_records import ArtifactRecords
from pipeline.targets.node_command import NodeCommand, Runner, run, run_workers
from pipeline.targets.placeholders import filled, words_of
from pipeline.targets.scope import Values

_LISTS = ("LIST", "STRUCT")


class CommandFailed(Exception):
    """A container's command did not end well; the words say how."""


def output_values(
    folder: Path, place: str, name: str, component: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns ExecutorInput's outputs: a place for each.

    Args:
        folder: the task's own, of parameters and of what the executor says.
        place: that of its artifacts, which may be remote.
        name: what its artifacts' names begin with.
        component: whose outputs they are.
    """
    declared, artifacts = component.get("outputDefinitions", {}), {}
    for key, each in declared.get("artifacts", {}).items():
        artifact = {"name": f"{name}/{key}", "uri": f"{place}/{key}", "type": each["artifactType"]}
        artifacts[key] = {"artifacts": [{**artifact, "metadata": {}}]}
    parameters = {
        key: {"outputFile": str(folder / f"{key}.parameter")}
        for key in declared.get("parameters", {})
    }
    output_file = str(folder / "executor_output.json")
    return {"artifacts": artifacts, "parameters": parameters, "outputFile": output_file}


def contained(
    name: str,
    executor: Mapping[str, Any],
    component: Mapping[str, Any],
    told: Mapping[str, Any],
    *,
    runner: Runner,
    log: Path,
    timeout: float | None,
) -> Values:
    """Runs a container, after the driver that it may have, and reads what it made.

    Args:
        name: the task.
        executor: its `container`, or its `customJob` of one or several worker pools.
        component: says of what type its output parameters are.
        told: its ExecutorInput.
        runner: the process that stands for a container.
        log: where to write what it says.
        timeout: seconds that it may take; None: any.

    Raises:
        CommandFailed: it ended with a code other than 0, or took longer.
    """
    container, pools = executor.get("container"), []
    if container is None:
        pools = executor["customJob"]["customJob"]["jobSpec"]["workerPoolSpecs"]
        container = pools[0]["containerSpec"]
    before = container.get("lifecycle", {}).get("preCacheCheck")
    for part in [*([before] if before else []), container]:
        words = [*part.get("command", []), *part.get("args", [])]
        process = runner(
            NodeCommand(
                name,
                container.get("image") or container.get("imageUri", ""),
                tuple(each for word in words for each in words_of(word, told)),
                {each["name"]: each.get("value", "") for each in container.get("env", [])},
            )
        )
        replicas = [int(pool.get("replicaCount", 1)) for pool in pools]
        if sum(replicas) > 1:
            ended = run_workers(process, replicas, log, timeout=timeout)
        else:
            ended = run(process, log, timeout=timeout)
        if ended:
            raise CommandFailed(ended)
    return _made(component, told["outputs"])


def resolved(
    resolver: Mapping[str, Any],
    component: Mapping[str, Any],
    told: Mapping[str, Any],
    records: ArtifactRecords,
) -> Values:
    """Looks up what a resolver asks for, as Vertex' metadata service would."""
    found = {}
    for key in component.get("outputDefinitions", {}).get("artifacts", {}):
        query = resolver["outputArtifactQueries"][key]["filter"]
        if any(not i["artifacts"] for i in told["inputs"]["artifacts"].values()):
            artifact = None  # it asks for what belongs to an artifact that there is not
        else:
            artifact = records.latest(filled(query, told))
        found[key] = {"artifacts": [] if artifact is None else [artifact]}
    return Values(found, {})


def imported(
    importer: Mapping[str, Any], component: Mapping[str, Any], told: Mapping[str, Any]
) -> Values:
    """Makes an artifact of what is there already."""
    (key,) = component["outputDefinitions"]["artifacts"]
    uri = importer["artifactUri"]
    values = told["inputs"]["parameterValues"]
    place = uri["constant"] if "constant" in uri else values[uri["runtimeParameter"]]
    artifact = {
        "name": place,
        "uri": place,
        "type": importer["typeSchema"],
        "metadata": importer.get("metadata", {}),
    }
    return Values({key: {"artifacts": [artifact]}}, {})


def _made(component: Mapping[str, Any], outputs: Mapping[str, Any]) -> Values:
    """What a container wrote: ExecutorOutput, and a file per parameter that is not in it."""
    written = Path(outputs["outputFile"])
    output = json.loads(written.read_text()) if written.exists() else {}
    artifacts = outputs["artifacts"]
    for key, found in output.get("artifacts", {}).items():
        for artifact, changed in zip(artifacts[key]["artifacts"], found["artifacts"], strict=True):
            artifact["uri"] = changed.get("uri") or artifact["uri"]
            artifact["metadata"] = {**artifact["metadata"], **changed.get("metadata", {})}
    parameters = dict(output.get("parameterValues", {}))
    declared = component.get("outputDefinitions", {}).get("parameters", {})
    for key, place in outputs["parameters"].items():
        file = Path(place["outputFile"])
        if key not in parameters and file.exists():
            parameters[key] = _typed(file.read_text(), declared[key].get("parameterType", "STRING"))
    return Values(artifacts, parameters)


def _typed(text: str, kind: str) -> Any:
    if kind in ("NUMBER_INTEGER", "NUMBER_DOUBLE"):
        return float(text) if kind == "NUMBER_DOUBLE" else int(text)
    if kind == "BOOLEAN":
        return text.strip().lower() == "true"
    return json.loads(text) if kind in _LISTS else text
