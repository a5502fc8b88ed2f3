"""Execute one task of a compiled pipeline: a container, a resolver, or an importer."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.replay import kubeflow_rules as rules
from pipeline.replay.artifact_records import ArtifactRecords
from pipeline.replay.kubeflow_pod import LOGS, Pod, PodError, start_pod
from pipeline.replay.node_command import NodeCommand, Runner, on_this_machine, run, run_workers
from pipeline.replay.node_environment import NO_CREDENTIALS, Credentials, pod_environment
from pipeline.replay.object_stores import ObjectStore
from pipeline.replay.scope import Values
from pipeline.targets.placeholders import Placeholders, as_json
from pipeline.targets.spec_types import Component, Container, Executor, ExecutorInput, JsonMapping

_LISTS = ("LIST", "STRUCT")
# From Go's strconv.ParseBool; any other text is an error.
_TRUTHS: dict[str, bool] = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


class CommandFailed(Exception):
    """A container's command failed; the message describes the failure."""


@dataclass(frozen=True)
class Host:
    """How the containers of a replay are run.

    Attributes:
        runner: Returns the process that replaces a container.
        credentials: Credentials of the containers for remote places.
        store: Store from which Kubeflow's launcher downloads artifacts; None: run nodes without a
            launcher.
        root: Root of the artifacts in the store.
    """

    runner: Runner = on_this_machine
    credentials: Credentials = NO_CREDENTIALS
    store: ObjectStore | None = None
    root: str = ""


def output_values(folder: Path, place: str, name: str, component: Component) -> JsonObject:
    """Return ExecutorInput's outputs: artifacts at a place, other files in the task's folder."""
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


@dataclass(frozen=True)
class Attempt:
    """A container to run.

    Attributes:
        name: The task.
        executor: Its `container`, or its `customJob` of one or several worker pools.
        component: The component, which declares the types of the output parameters.
        executor_input: Its ExecutorInput.
        log: The file for its output.
        timeout: Time limit in seconds; None: no limit.
        secrets: Variables that the cluster's secrets set.
    """

    name: str
    executor: Executor
    component: Component
    executor_input: ExecutorInput
    log: Path
    timeout: float | None = None
    secrets: tuple[str, ...] = ()


def run_container(attempt: Attempt, host: Host) -> Values:
    """Run a container, after its driver if it has one, and return its outputs.

    Raises:
        CommandFailed: It ended with a code other than 0, exceeded the time limit, or the platform
            would not start it.
    """
    if host.store is None:
        _run_commands(attempt, host, None)
        return _made(attempt.component, attempt.executor_input["outputs"])
    folder = attempt.log.parent
    try:
        with start_pod(attempt.executor_input, folder, host.store, host.root) as pod:
            _run_commands(replace(attempt, executor_input=pod.executor_input), host, pod)
            made = _made(attempt.component, pod.executor_input["outputs"])
            pod.check_output_parameters(made.parameters)
            shutil.copyfile(attempt.log, pod.path_of(made.artifacts[LOGS]["artifacts"][0]["uri"]))
            pod.upload()
            del made.artifacts[LOGS]  # the replay has another log file
            return made
    except PodError as error:
        raise CommandFailed(str(error)) from None


def _run_commands(attempt: Attempt, host: Host, pod: Pod | None) -> None:
    container, pools = attempt.executor.get("container"), []
    if container is None:
        pools = attempt.executor["customJob"]["customJob"]["jobSpec"]["workerPoolSpecs"]
        container = pools[0]["containerSpec"]
    replicas = [int(pool.get("replicaCount", 1)) for pool in pools]
    before = container.get("lifecycle", {}).get("preCacheCheck")
    for part in [*([before] if before else []), container]:
        process = host.runner(_command(attempt, host, pod, container, part))
        if sum(replicas) > 1:
            ended = run_workers(process, replicas, attempt.log, timeout=attempt.timeout)
        else:
            ended = run(process, attempt.log, timeout=attempt.timeout)
        if ended:
            raise CommandFailed(ended)


def _command(
    attempt: Attempt, host: Host, pod: Pod | None, container: Container, part: JsonMapping
) -> NodeCommand:
    """Return the command of a container, or of its driver."""
    parts = [*part.get("command", []), *part.get("args", [])]
    own = {each["name"]: each.get("value", "") for each in container.get("env", [])}
    secrets = {name: os.environ[name] for name in attempt.secrets if name in os.environ}
    env = {**host.credentials.env, **secrets, **own}
    image = container.get("image") or container.get("imageUri", "")
    if pod is None:
        placeholders = Placeholders(attempt.executor_input)
        words = tuple(word for each in parts for word in placeholders.words(each))
        return NodeCommand(attempt.name, image, words, env)
    if structured := [each for each in parts if Placeholders.is_structured(each)]:
        raise PodError(
            f"was not started: the program would get the text {structured[0]} unchanged "
            f"({rules.STRUCTURED}); use a Python component, or join the words in the program"
        )
    pod_env = pod_environment(attempt.name, pod.home, secrets=attempt.secrets)
    # The kubelet knows the variables of the pod's spec, not those of the image (HOME, PATH). The
    # launcher, which fills placeholders, gets arguments and ExecutorInput from the kubelet.
    known = {name: value for name, value in pod_env.items() if name.startswith("KFP_POD_")}
    known |= {**secrets, **own}
    (given,) = pod.arguments([as_json(attempt.executor_input)], known)
    placeholders = Placeholders(json.loads(given), pod.path_of)
    words = [word for each in pod.arguments(parts, known) for word in placeholders.words(each)]
    return NodeCommand(attempt.name, image, tuple(words), env, pod_env)


def resolved(
    resolver: JsonMapping,
    component: Component,
    executor_input: ExecutorInput,
    records: ArtifactRecords,
) -> Values:
    """Return the artifacts that a resolver's queries find in the records, as on Vertex."""
    found = {}
    for key in component.get("outputDefinitions", {}).get("artifacts", {}):
        query = resolver["outputArtifactQueries"][key]["filter"]
        if any(not i["artifacts"] for i in executor_input["inputs"]["artifacts"].values()):
            artifact = None  # the query refers to an artifact that does not exist
        else:
            artifact = records.latest(Placeholders(executor_input).fill(query))
        found[key] = {"artifacts": [] if artifact is None else [artifact]}
    return Values(found, {})


def imported(importer: JsonMapping, component: Component, executor_input: ExecutorInput) -> Values:
    """Return an artifact for existing data."""
    (key,) = component["outputDefinitions"]["artifacts"]
    uri = importer["artifactUri"]
    values = executor_input["inputs"]["parameterValues"]
    place = uri["constant"] if "constant" in uri else values.get(uri["runtimeParameter"])
    if not place:
        raise ValueError(f"the importer's {uri['runtimeParameter']} has no value; give it one")
    artifact = {
        "name": place,
        "uri": place,
        "type": importer["typeSchema"],
        "metadata": importer.get("metadata", {}),
    }
    return Values({key: {"artifacts": [artifact]}}, {})


def _made(component: Component, outputs: JsonMapping) -> Values:
    """Return the outputs that a container wrote: ExecutorOutput, and files of other parameters."""
    written = Path(outputs["outputFile"])
    output = json.loads(written.read_text()) if written.exists() else {}
    artifacts = outputs["artifacts"]
    for key, found in output.get("artifacts", {}).items():
        # Undeclared outputs are ignored, as in the launcher (uploadOutputArtifacts).
        known = artifacts.get(key, {}).get("artifacts", [])
        for artifact, changed in zip(known, found.get("artifacts", []), strict=False):
            artifact["uri"] = changed.get("uri") or artifact["uri"]
            artifact["metadata"] = {**artifact["metadata"], **changed.get("metadata", {})}
    parameters = dict(output.get("parameterValues", {}))
    declared = component.get("outputDefinitions", {}).get("parameters", {})
    for key, place in outputs["parameters"].items():
        file = Path(place["outputFile"])
        if key not in parameters and file.exists():
            kind = declared[key].get("parameterType", "STRING")
            try:
                parameters[key] = _typed(file.read_text(encoding="utf-8"), kind)
            except (ValueError, KeyError):
                raise CommandFailed(
                    f"wrote an output parameter {key} that is not a {kind}: "
                    f"{file.read_text(errors='replace')[:80]!r}"
                ) from None
    return Values(artifacts, parameters)


def _typed(text: str, kind: str) -> JsonValue:
    if kind in ("NUMBER_INTEGER", "NUMBER_DOUBLE"):
        return float(text) if kind == "NUMBER_DOUBLE" else int(text)
    if kind == "BOOLEAN":
        return _TRUTHS[text.strip()]
    if kind not in _LISTS:
        return text
    value = json.loads(text)
    if not isinstance(value, list if kind == "LIST" else dict):
        raise ValueError(text)
    return value
