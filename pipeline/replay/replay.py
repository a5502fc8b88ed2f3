"""`python -m pipeline replay`: execute a compiled pipeline on this machine, command by command.

A folder replaces the platform's artifact store, and a file of records its metadata store.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import yaml

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.replay.containers import (
    CommandFailed,
    Container,
    Values,
    add_executor_logs,
    as_input,
    fill_placeholders,
    run_container,
)
from pipeline.report.progress import duration
from pipeline.targets.compiled_spec import CompiledSpec, in_order
from pipeline.targets.long_values import find_oversized
from pipeline.targets.run_parameters import values_of

# Of a resolver's filter.
_CONDITION = re.compile(r'([\w.]+)=("[^"]*"|[\w.]+)')
_UNKNOWN = re.compile(r'"(triggerPolicy|\w+Iterator|componentInputArtifact|taskFinalStatus)":')


class NodeFailed(Exception):
    """A node of a replayed pipeline failed."""

    def __init__(self, name: str, words: str, log: Path | None = None) -> None:
        """Set the node, how it ended, and its log; None if nothing of it ran."""
        super().__init__(f"{name} {words}" + (f"; its log is {log}" if log else ""))
        self.name, self.words, self.log = name, words, log

    def last_lines(self) -> list[str]:
        """Return the last lines of the node's log; without a log, the message."""
        text = str(self) if self.log is None else self.log.read_text(errors="replace")
        return text.splitlines()[-25:]


class Node(NamedTuple):
    """A task that ran, its outputs by key, and the log of a container."""

    name: str
    seconds: float
    artifacts: Mapping[str, JsonValue]
    log: Path | None


class Replay:
    """One run of a compiled pipeline, whose `folder` has a folder for each node."""

    def __init__(
        self,
        compiled: CompiledSpec,
        root: Path,
        *,
        parameters: Mapping[str, str] | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Check the pipeline, in particular that it has only parts that `compile` writes.

        Args:
            compiled: The pipeline, with places on this machine.
            root: Folder of artifacts, logs and records, which later replays of the pipeline find.
            parameters: Values of the pipeline's parameters, as texts.
            say: Called with a line when a node starts, is started again, and ends.
        """
        self._compiled, self._root, self._say = compiled, root, say
        self._parameters = values_of(compiled, parameters or {})
        self._components = compiled.spec["components"]
        self._tasks: dict[str, JsonObject] = compiled.spec["root"]["dag"]["tasks"]
        self._order = in_order(self._tasks)
        for name, task in self._tasks.items():
            component = self._components[task["componentRef"]["name"]]
            kinds = component.keys() & {"dag"} or self._compiled.executor(component).keys()
            unknown = _UNKNOWN.findall(json.dumps(task))
            if unknown or not kinds & {"container", "customJob", "resolver", "importer"}:
                raise ConfigError(
                    f"{name} has {unknown[0] if unknown else ', '.join(kinds)}, and a "
                    "replay runs only what `python -m pipeline compile` writes. Run this file on "
                    "its platform."
                )
        if compiled.target == "kubeflow" and (errors := find_oversized(compiled.spec, "kubeflow")):
            raise ConfigError("\n".join(errors))
        self._run_id = time.strftime("%Y%m%d-%H%M%S")
        while (root / compiled.name / self._run_id).exists():
            self._run_id += "x"
        self.folder = root / compiled.name / self._run_id
        # JSON lines, one artifact in ExecutorInput's format per line, latest last.
        self._records = root / compiled.name / "artifacts.jsonl"
        self._made: dict[str, Values] = {}

    def run(self) -> list[Node]:
        """Run all tasks, one after another, and return them in order."""
        self.folder.mkdir(parents=True)
        nodes: list[Node] = []
        for name in self._order:
            try:
                node, self._made[name] = self._run_task(name, self._tasks[name])
            except ValueError as error:  # a placeholder or query refers to nothing
                raise NodeFailed(name, f"was not started: {error}") from None
            with self._records.open("a", encoding="utf-8") as stream:
                for artifacts in node.artifacts.values():
                    stream.writelines(json.dumps(each) + "\n" for each in artifacts["artifacts"])
            nodes.append(node)
        return nodes

    def _run_task(self, name: str, task: JsonObject) -> tuple[Node, Values]:
        component, folder = self._components[task["componentRef"]["name"]], self.folder / name
        executor = self._compiled.executor(component)
        inputs = self._inputs(task, component)
        self._say(f"{name}: start")
        started, attempts = time.monotonic(), 1
        folder.mkdir()
        outputs = _outputs(folder, f"{self._run_id}/{name}", component)
        if is_pod := self._compiled.target == "kubeflow" and "container" in executor:
            add_executor_logs(outputs, folder)
        executor_input = {"inputs": inputs, "outputs": outputs}
        log = folder / "log.txt"
        if "resolver" in executor:
            made = self._resolved(executor["resolver"], component, executor_input)
        elif "importer" in executor:
            made = _imported(executor["importer"], component, inputs["parameterValues"])
        else:
            timeout = self._compiled.timeout(component)
            secrets = tuple(self._compiled.cluster_variables(component))
            root = self._root if is_pod else None
            container = Container(name, executor, executor_input, log, timeout, secrets, root)
            retries = int(task.get("retryPolicy", {}).get("maxRetryCount", 0))
            made = None
            while made is None:
                try:
                    made = run_container(container)
                except CommandFailed as error:
                    if attempts > retries:
                        again = f" {attempts} times" if retries else ""
                        wrote = log if log.exists() else None  # nothing was started
                        raise NodeFailed(name, f"{error}{again}", wrote) from None
                    # At once, without the platform's pause.
                    self._say(f"{name}: {error}; started again")
                    attempts += 1
        seconds = time.monotonic() - started
        again = f", at attempt {attempts}" if attempts > 1 else ""
        self._say(f"{name}: done in {duration(seconds)}{again}")
        return Node(name, seconds, made.artifacts, log if log.exists() else None), made

    def _inputs(self, task: JsonObject, component: JsonObject) -> JsonObject:
        """Return ExecutorInput's inputs."""
        artifacts, parameters = {}, {}
        for key, source in task.get("inputs", {}).get("artifacts", {}).items():
            place = source["taskOutputArtifact"]
            found = self._made[place["producerTask"]].artifacts[place["outputArtifactKey"]]
            if self._compiled.target == "kubeflow":
                found = {"artifacts": [as_input(each) for each in found["artifacts"]]}
            artifacts[key] = found
        for key, source in task.get("inputs", {}).get("parameters", {}).items():
            if "runtimeValue" in source:
                parameters[key] = source["runtimeValue"]["constant"]
            elif "componentInputParameter" in source:
                parameters[key] = self._parameters.get(source["componentInputParameter"])
            else:
                place = source["taskOutputParameter"]
                made = self._made[place["producerTask"]].parameters
                parameters[key] = made.get(place["outputParameterKey"])
        given = {key: value for key, value in parameters.items() if value is not None}
        declared = component.get("inputDefinitions", {}).get("parameters", {})
        defaults = {
            k: each["defaultValue"] for k, each in declared.items() if "defaultValue" in each
        }
        return {"artifacts": artifacts, "parameterValues": {**defaults, **given}}

    def _resolved(
        self, resolver: JsonObject, component: JsonObject, executor_input: JsonObject
    ) -> Values:
        """Return the artifacts that a resolver's queries find in the records, as on Vertex."""
        found = {}
        for key in component.get("outputDefinitions", {}).get("artifacts", {}):
            query = resolver["outputArtifactQueries"][key]["filter"]
            artifact = None  # also if the query refers to an artifact that does not exist
            if all(each["artifacts"] for each in executor_input["inputs"]["artifacts"].values()):
                artifact = _latest(self._records, fill_placeholders(query, executor_input))
            found[key] = {"artifacts": [] if artifact is None else [artifact]}
        return Values(found, {})


def _outputs(folder: Path, name: str, component: JsonObject) -> JsonObject:
    """Return ExecutorInput's outputs, all in the task's folder."""
    declared, artifacts = component.get("outputDefinitions", {}), {}
    for key, each in declared.get("artifacts", {}).items():
        artifact = {"name": f"{name}/{key}", "uri": f"{folder}/{key}", "type": each["artifactType"]}
        artifacts[key] = {"artifacts": [{**artifact, "metadata": {}}]}
    parameters = {
        key: {"outputFile": str(folder / f"{key}.parameter")}
        for key in declared.get("parameters", {})
    }
    output_file = str(folder / "executor_output.json")
    return {"artifacts": artifacts, "parameters": parameters, "outputFile": output_file}


def _imported(importer: JsonObject, component: JsonObject, values: JsonObject) -> Values:
    """Return an artifact for existing data."""
    (key,) = component["outputDefinitions"]["artifacts"]
    uri, about = importer["artifactUri"], importer.get("metadata", {})
    place = uri["constant"] if "constant" in uri else values.get(uri["runtimeParameter"])
    if not place:
        raise ValueError(f"the importer's {uri['runtimeParameter']} has no value; give it one")
    artifact = {"name": place, "uri": place, "type": importer["typeSchema"], "metadata": about}
    return Values({key: {"artifacts": [artifact]}}, {})


def _latest(records: Path, query: str) -> JsonObject | None:
    """Return the latest artifact in a file of records that matches a resolver's filter, or None."""
    # As Vertex' metadata service has it:
    # `schema_title="tfx.Model" AND state=LIVE AND metadata.blessed.number_value=1`
    conditions = [_CONDITION.fullmatch(part.strip()) for part in query.split(" AND ")]
    if None in conditions:
        raise ValueError(f"the resolver's condition {query!r} is of no form that is known here.")
    expected = [(each[1], each[2]) for each in conditions if each and each[2] != "LIVE"]
    lines = records.read_text(encoding="utf-8").splitlines() if records.exists() else []
    for artifact in map(json.loads, reversed(lines)):
        if all(_value(artifact, path) == json.loads(value) for path, value in expected):
            return artifact
    return None


def _value(artifact: JsonObject, path: str) -> JsonValue:
    if path == "schema_title":
        kind = artifact.get("type", {})
        schema = yaml.safe_load(kind.get("instanceSchema", "")) or {}
        return kind.get("schemaTitle") or schema.get("title", "")
    node: JsonValue = artifact
    for step in path.removesuffix(".number_value").removesuffix(".string_value").split("."):
        node = node.get(step) if isinstance(node, Mapping) else None
    return node
