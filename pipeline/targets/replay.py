"""`python -m pipeline replay`: a compiled pipeline executed on this machine, command by command.

What runs is what the platform would run: each container's own command and arguments with its
placeholders filled, in the order of the spec's dependencies. In the platform's place stand a folder
for artifacts and a file of records for what was made.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.common.errors import ConfigError
from pipeline.targets.artifact_records import ArtifactRecords
from pipeline.targets.compiled_spec import CompiledSpec, in_order
from pipeline.targets.node_command import NodeCommand, Runner, ended, on_this_machine
from pipeline.targets.placeholders import filled

_TAIL_LINES = 25
# What open-source Kubeflow's driver makes of every type that it does not know.
_KUBEFLOW_TYPE = {"schemaTitle": "system.Artifact", "schemaVersion": "0.0.1"}


class NodeFailed(Exception):
    """A node of a replayed pipeline did not end well."""

    def __init__(self, name: str, code: int, log: Path) -> None:
        """Takes what its process ended with and where its words are."""
        super().__init__(f"{name} ended with code {code}; its log is {log}")
        self.name, self.code, self.log = name, code, log

    def last_lines(self) -> list[str]:
        """Returns what the node wrote last."""
        return self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]


class Node(NamedTuple):
    """A task that ran: its name, seconds, and outputs by key."""

    name: str
    seconds: float
    artifacts: dict[str, Any]
    log: Path | None


class Replay:
    """One run of a compiled pipeline."""

    def __init__(
        self,
        compiled: CompiledSpec,
        root: Path,
        *,
        parameters: Mapping[str, Any] | None = None,
        runner: Runner = on_this_machine,
        on_start: Callable[[str], None] = lambda name: None,
        on_end: Callable[[Node], None] = lambda node: None,
    ) -> None:
        """Nothing runs yet.

        Args:
            compiled: the pipeline, its places on this machine.
            root: folder of artifacts, logs and records; of several replays of one pipeline the
                same, so that one finds what those before it made.
            parameters: values of the pipeline's own parameters.
            runner: the process that stands for a node's container.
            on_start: called with the name of each node before it runs.
            on_end: called with each node that ran.
        """
        self._compiled = compiled
        self._run_id = time.strftime("%Y%m%d-%H%M%S")
        self._folder = root / compiled.name / self._run_id
        while self._folder.exists():
            self._run_id += "x"
            self._folder = root / compiled.name / self._run_id
        self._records = ArtifactRecords(root / compiled.name / "artifacts.jsonl")
        self._parameters = {**compiled.parameters, **(parameters or {})}
        self._runner = runner
        self._on_start, self._on_end = on_start, on_end

    def run(self) -> list[Node]:
        """Runs all tasks, one after another.

        Raises:
            NodeFailed: One did not end well; exit handlers have run.
            ConfigError: The spec has something that is not known here.
        """
        self._folder.mkdir(parents=True)
        root = self._compiled.spec["root"]
        given = {
            name: self._parameters.get(name, declared.get("defaultValue"))
            for name, declared in root.get("inputDefinitions", {}).get("parameters", {}).items()
        }
        nodes: list[Node] = []
        self._run_graph(root["dag"]["tasks"], given, nodes)
        return nodes

    def _run_graph(
        self, tasks: Mapping[str, Any], given: Mapping[str, Any], nodes: list[Node]
    ) -> None:
        outputs: dict[str, dict[str, Any]] = {}
        failure: NodeFailed | None = None
        for name in in_order(tasks):
            task = tasks[name]
            policy = task.get("triggerPolicy", {})
            is_exit_handler = policy.get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED"
            if failure is not None and not is_exit_handler:
                continue
            if "condition" in policy:
                raise ConfigError(
                    f"{name} runs on the condition {policy['condition']!r}, which replay does not "
                    "know how to judge: replay the pipeline without it."
                )
            component = self._compiled.spec["components"][task["componentRef"]["name"]]
            try:
                if "dag" in component:
                    self._run_graph(component["dag"]["tasks"], given, nodes)
                    continue
                status = "FAILED" if failure else "SUCCEEDED"
                self._on_start(name)
                node, parameters = self._run_task(name, task, component, given, outputs, status)
            except NodeFailed as error:
                failure = failure or error
                continue
            outputs[name] = {"artifacts": node.artifacts, "parameters": parameters}
            nodes.append(node)
            self._on_end(node)
        if failure is not None:
            raise failure

    def _run_task(
        self,
        name: str,
        task: Mapping[str, Any],
        component: Mapping[str, Any],
        given: Mapping[str, Any],
        outputs: Mapping[str, Any],
        status: str,
    ) -> tuple[Node, dict[str, Any]]:
        started = time.monotonic()
        folder = self._folder / name
        folder.mkdir(parents=True)
        told = {
            "inputs": self._inputs(task, component, given, outputs, status),
            "outputs": self._outputs(name, component),
        }
        executor = self._compiled.executor(component)
        log: Path | None = None
        parameters: dict[str, Any] = {}
        if "resolver" in executor:
            artifacts = self._resolved(executor["resolver"], component, told)
        elif "importer" in executor:
            artifacts = self._imported(executor["importer"], component, told)
        elif container := _container(executor):
            log = folder / "log.txt"
            artifacts, parameters = self._contained(name, container, told, log)
        else:
            raise ConfigError(f"{name} is executed by {', '.join(executor)}, unknown to replay.")
        for found in artifacts.values():
            for artifact in found["artifacts"]:
                self._records.add(artifact)
        return Node(name, time.monotonic() - started, artifacts, log), parameters

    def _inputs(
        self,
        task: Mapping[str, Any],
        component: Mapping[str, Any],
        given: Mapping[str, Any],
        outputs: Mapping[str, Any],
        status: str,
    ) -> dict[str, Any]:
        wanted = task.get("inputs", {})
        artifacts = {}
        for key, source in wanted.get("artifacts", {}).items():
            place = source["taskOutputArtifact"]
            found = outputs[place["producerTask"]]["artifacts"][place["outputArtifactKey"]]
            artifacts[key] = {"artifacts": [self._handed_over(a) for a in found["artifacts"]]}
        values: dict[str, Any] = {}
        for key, source in wanted.get("parameters", {}).items():
            if "runtimeValue" in source:
                values[key] = source["runtimeValue"]["constant"]
            elif "componentInputParameter" in source:
                values[key] = given[source["componentInputParameter"]]
            elif "taskOutputParameter" in source:
                place = source["taskOutputParameter"]
                produced = outputs[place["producerTask"]]["parameters"]
                values[key] = produced[place["outputParameterKey"]]
            elif "taskFinalStatus" in source:
                values[key] = json.dumps({"state": status})
        declared = component.get("inputDefinitions", {}).get("parameters", {})
        for key, each in declared.items():
            if key not in values and "defaultValue" in each:
                values[key] = each["defaultValue"]
        return {"artifacts": artifacts, "parameterValues": values}

    def _handed_over(self, artifact: dict[str, Any]) -> dict[str, Any]:
        if self._compiled.target == "vertex":
            return artifact
        return {**artifact, "type": _KUBEFLOW_TYPE}

    def _outputs(self, name: str, component: Mapping[str, Any]) -> dict[str, Any]:
        declared = component.get("outputDefinitions", {})
        artifacts = {}
        for key, each in declared.get("artifacts", {}).items():
            uri = str(self._folder / name / key)
            kind = each["artifactType"]
            artifact = {"name": f"{self._run_id}/{name}/{key}", "uri": uri, "type": kind}
            artifacts[key] = {"artifacts": [{**artifact, "metadata": {}}]}
        values = {
            key: {"outputFile": str(self._folder / name / f"{key}.parameter")}
            for key in declared.get("parameters", {})
        }
        output_file = str(self._folder / name / "executor_output.json")
        return {"artifacts": artifacts, "parameters": values, "outputFile": output_file}

    def _contained(
        self, name: str, container: Mapping[str, Any], told: dict[str, Any], log: Path
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        before = container.get("lifecycle", {}).get("preCacheCheck")
        for part in [*([before] if before else []), container]:
            words = [*part.get("command", []), *part.get("args", [])]
            command = NodeCommand(
                name,
                container.get("image") or container.get("imageUri", ""),
                tuple(filled(word, told) for word in words),
                {each["name"]: each.get("value", "") for each in container.get("env", [])},
            )
            code = ended(self._runner(command), log)
            if code:
                raise NodeFailed(name, code, log)
        written = Path(told["outputs"]["outputFile"])
        output = json.loads(written.read_text()) if written.exists() else {}
        artifacts = told["outputs"]["artifacts"]
        for key, found in output.get("artifacts", {}).items():
            for artifact, changed in zip(
                artifacts[key]["artifacts"], found["artifacts"], strict=True
            ):
                artifact["uri"] = changed.get("uri") or artifact["uri"]
                artifact["metadata"] = {**artifact["metadata"], **changed.get("metadata", {})}
        return artifacts, output.get("parameterValues", {})

    def _resolved(
        self, resolver: Mapping[str, Any], component: Mapping[str, Any], told: dict[str, Any]
    ) -> dict[str, Any]:
        found = {}
        for key in component.get("outputDefinitions", {}).get("artifacts", {}):
            query = resolver["outputArtifactQueries"][key]["filter"]
            if any(not i["artifacts"] for i in told["inputs"]["artifacts"].values()):
                artifact = None  # it asks for what belongs to an artifact that there is not
            else:
                artifact = self._records.latest(filled(query, told))
            found[key] = {"artifacts": [] if artifact is None else [artifact]}
        return found

    def _imported(
        self, importer: Mapping[str, Any], component: Mapping[str, Any], told: dict[str, Any]
    ) -> dict[str, Any]:
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
        return {key: {"artifacts": [artifact]}}


def _container(executor: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Returns the command of a container, or that of a CustomJob's first worker pool."""
    if "container" in executor:
        return executor["container"]
    if "customJob" in executor:
        pools = executor["customJob"]["customJob"]["jobSpec"]["workerPoolSpecs"]
        return pools[0]["containerSpec"]
    return None
