"""`python -m pipeline replay`: execute a compiled pipeline on this machine, command by command.

It runs what the platform would run: each container's command and arguments with its placeholders
filled, in the order of the spec's dependencies. A folder replaces the platform's artifact store,
and a file of records its metadata store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonValue
from pipeline.replay import execution
from pipeline.replay.artifact_records import ArtifactRecords
from pipeline.replay.conditions import Condition, ConditionError, parsed
from pipeline.replay.execution import Attempt, Host
from pipeline.replay.kubeflow_pod import add_executor_logs, as_input
from pipeline.replay.object_stores import Folder
from pipeline.replay.scope import Scope, Values
from pipeline.targets.compiled_spec import CompiledSpec, in_order, is_exit_handler, needed
from pipeline.targets.run_parameters import values_of
from pipeline.targets.spec_sizes import find_oversized
from pipeline.targets.spec_types import Component, JsonMapping, Task

_TAIL_LINES = 25
_ROOT = "root"
_EXECUTORS = ("container", "customJob", "resolver", "importer")


class NodeFailed(Exception):
    """A node of a replayed pipeline failed.

    Attributes:
        name: Name of the node.
        words: How it ended.
        log: Its log; None if nothing of it ran.
    """

    def __init__(self, name: str, words: str, log: Path | None = None) -> None:
        """Set the node, how its process ended, and its log."""
        super().__init__(f"{name} {words}" + (f"; its log is {log}" if log else ""))
        self.name, self.words, self.log = name, words, log

    def last_lines(self) -> list[str]:
        """Return the last lines of the node's log; without a log, the message."""
        if self.log is None:
            return [str(self)]
        return self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]


class Node(NamedTuple):
    """A task that ran or was skipped.

    Attributes:
        name: Name of the task.
        state: How it ended.
        seconds: Its duration in seconds.
        artifacts: Its outputs by key.
        log: Its log; None if it is not a container.
        attempts: How often it was started.
        why: Why it was skipped.
    """

    name: str
    state: Literal["done", "skipped"]
    seconds: float = 0.0
    artifacts: Mapping[str, JsonValue] = {}
    log: Path | None = None
    attempts: int = 1
    why: str = ""


class Replay:
    """One run of a compiled pipeline."""

    def __init__(
        self,
        compiled: CompiledSpec,
        root: Path,
        *,
        remote: str | None = None,
        parameters: Mapping[str, str] | None = None,
        host: Host | None = None,
        on_start: Callable[[str], None] = lambda name: None,
        on_end: Callable[[Node], None] = lambda node: None,
        on_retry: Callable[[str, str], None] = lambda name, words: None,
    ) -> None:
        """Check the pipeline without running it.

        Args:
            compiled: The pipeline, with places on this machine.
            root: Folder of artifacts, logs and records. Several replays of one pipeline share it,
                so that later ones find the artifacts of earlier ones.
            remote: Place of artifacts; None: in `root`.
            parameters: Values of the pipeline's parameters, as texts.
            host: How containers are run; None: on this machine, for Kubeflow with a simulated
                launcher.
            on_start: Called with the name of each node before it runs.
            on_end: Called with each node that ran or was skipped.
            on_retry: Called with the name of a node that failed and is started again, and how it
                failed.

        Raises:
            ConfigError: The spec has an unsupported part, or a parameter is wrong.
        """
        self._compiled = compiled
        self._parameters = values_of(compiled, parameters or {})
        self._conditions: dict[str, Condition] = {}
        for component in (compiled.spec[_ROOT], *compiled.spec["components"].values()):
            if "dag" in component:
                self._check_tasks(component["dag"]["tasks"])
            else:
                self._check_executor(component)
        self._run_id = time.strftime("%Y%m%d-%H%M%S")
        while (root / compiled.name / self._run_id).exists():
            self._run_id += "x"
        self._folder = root / compiled.name / self._run_id
        self._root, self._place = root, (remote or str(root)).rstrip("/")
        if host is None:
            store = Folder() if compiled.target == "kubeflow" else None
            host = Host(store=store, root=str(root))
        self._host = host
        if self._has_launcher and (found := find_oversized(compiled.spec, compiled.target)):
            raise ConfigError("\n".join(found))
        self._records = ArtifactRecords(root / compiled.name / "artifacts.jsonl")
        self._on_start, self._on_end, self._on_retry = on_start, on_end, on_retry

    @property
    def place(self) -> str:
        """The place of this run's artifacts, with a folder for each node."""
        return f"{self._place}/{self._compiled.name}/{self._run_id}"

    @property
    def _has_launcher(self) -> bool:
        return self._host.store is not None

    def run(self) -> list[Node]:
        """Run all tasks, one after another.

        Returns:
            The tasks that ran or were skipped, in order.

        Raises:
            NodeFailed: A task failed; exit handlers have run.
        """
        self._folder.mkdir(parents=True)
        nodes: list[Node] = []
        root = self._compiled.spec[_ROOT]
        self._run_graph(root["dag"], Values({}, self._parameters), self._folder, nodes)
        return nodes

    def _check_executor(self, component: Component) -> None:
        executor = self._compiled.executor(component)
        if not executor.keys() & set(_EXECUTORS):
            raise ConfigError(
                f"{component['executorLabel']} is of the kind {', '.join(executor)}, which replay "
                f"does not know; it knows {', '.join(_EXECUTORS)}."
            )

    def _check_tasks(self, tasks: JsonMapping) -> None:
        for name, task in tasks.items():
            for kind in ("parameterIterator", "artifactIterator"):
                if kind in task:
                    raise ConfigError(
                        f"{name} runs once for each item ({kind}, KFP's ParallelFor), which replay "
                        "does not know: replay the pipeline without it."
                    )
            text = task.get("triggerPolicy", {}).get("condition")
            try:
                if text:
                    self._conditions[text] = parsed(text)
            except ConditionError as error:
                raise ConfigError(f"{name}: {error} Replay the pipeline without it.") from None

    def _run_graph(
        self, dag: JsonMapping, given: Values, folder: Path, nodes: list[Node]
    ) -> Values:
        hand_over = as_input if self._compiled.target == "kubeflow" else dict
        tasks, scope = dag["tasks"], Scope(hand_over, given)
        failure: NodeFailed | None = None
        for name in in_order(tasks):
            ends = is_exit_handler(tasks[name])
            if failure is not None and not ends:
                continue  # the platforms may start independent tasks
            missing = [n for n in sorted(needed(tasks, name)) if n not in scope.made]
            if missing and not ends:
                self._skip(name, f"{missing[0]} was skipped", scope, nodes)
                continue
            try:
                self._run_task(name, tasks[name], scope, folder / name, nodes)
            except (NodeFailed, ValueError) as error:
                if not isinstance(error, NodeFailed):  # a placeholder or query refers to nothing
                    error = NodeFailed(name, f"was not started: {error}")
                failure = failure or error
                scope.states[name] = "FAILED"
                scope.errors[name] = str(error)
        if failure is not None:
            raise failure
        return scope.outputs(dag)

    def _run_task(
        self, name: str, task: Task, scope: Scope, folder: Path, nodes: list[Node]
    ) -> None:
        component = self._compiled.spec["components"][task["componentRef"]["name"]]
        given = scope.inputs(task, component)
        inputs = {"artifacts": given.artifacts, "parameterValues": given.parameters}
        if text := task.get("triggerPolicy", {}).get("condition"):
            try:
                holds = self._conditions[text].holds({"inputs": inputs})
            except ConditionError as error:
                raise NodeFailed(name, f"was not started: {error}") from None
            if not holds:
                self._skip(name, f"not {text}", scope, nodes)
                return
        if "dag" in component:
            made = self._run_graph(component["dag"], given, folder, nodes)
        else:
            node, made = self._execute(task, component, inputs, folder)
            nodes.append(node)
            self._on_end(node)
        scope.made[name], scope.states[name] = made, "SUCCEEDED"

    def _execute(
        self, task: Task, component: Component, inputs: JsonMapping, folder: Path
    ) -> tuple[Node, Values]:
        name, log = folder.name, folder / "log.txt"
        self._on_start(name)
        started, attempts = time.monotonic(), 1
        folder.mkdir(parents=True)
        place = f"{self._place}/{folder.relative_to(self._root)}"
        outputs = execution.output_values(folder, place, f"{self._run_id}/{name}", component)
        executor = self._compiled.executor(component)
        if "container" in executor and self._has_launcher:
            add_executor_logs(outputs, place)
        executor_input = {"inputs": inputs, "outputs": outputs}
        if "resolver" in executor:
            made = execution.resolved(
                executor["resolver"], component, executor_input, self._records
            )
        elif "importer" in executor:
            made = execution.imported(executor["importer"], component, executor_input)
        else:
            timeout = self._compiled.timeout(component)
            secrets = tuple(self._compiled.cluster_variables(component))
            attempt = Attempt(name, executor, component, executor_input, log, timeout, secrets)
            retries = int(task.get("retryPolicy", {}).get("maxRetryCount", 0))
            attempts, made = self._run_container(attempt, retries)
        for found in made.artifacts.values():
            for artifact in found["artifacts"]:
                self._records.add(artifact)
        seconds = time.monotonic() - started
        wrote = log if log.exists() else None
        return Node(name, "done", seconds, made.artifacts, wrote, attempts), made

    def _run_container(self, attempt: Attempt, retries: int) -> tuple[int, Values]:
        """Run a container until it succeeds, without the platform's pauses between attempts."""
        for number in range(1, retries + 2):
            try:
                return number, execution.run_container(attempt, self._host)
            except execution.CommandFailed as error:
                if number > retries:
                    again = f" {number} times" if retries else ""
                    wrote = attempt.log if attempt.log.exists() else None  # nothing was started
                    raise NodeFailed(attempt.name, f"{error}{again}", wrote) from None
                self._on_retry(attempt.name, str(error))
        raise AssertionError(retries)

    def _skip(self, name: str, why: str, scope: Scope, nodes: list[Node]) -> None:
        scope.states[name] = "SKIPPED"
        node = Node(name, "skipped", why=why)
        nodes.append(node)
        self._on_end(node)
