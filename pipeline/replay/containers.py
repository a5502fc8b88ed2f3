"""Run a container of a compiled pipeline as processes of this machine's Python."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pipeline.common.json_types import JsonObject
from pipeline.replay.kubeflow_pod import CommandFailed, Pod, expand_word, pod_environment, start_pod
from pipeline.targets.long_values import refuse_long_arguments
from pipeline.targets.placeholders import Placeholders, as_json
from pipeline.targets.spec_types import Executor, ExecutorInput, JsonMapping
from trainer_module.devices.local_cluster import WorkersFailed, describe_end, launch
from trainer_module.devices.process import REPLAY


class Values(NamedTuple):
    """Outputs of a task by key. An artifact's value is ExecutorInput's `{"artifacts": [...]}`."""

    artifacts: JsonObject
    parameters: JsonObject


@dataclass(frozen=True)
class Container:
    """The container of a task."""

    name: str
    executor: Executor  # its `container`, or its `customJob` of one or several worker pools
    executor_input: ExecutorInput
    log: Path
    timeout: float | None  # in seconds
    secrets: tuple[str, ...]  # variables of the cluster; taken from this machine if set here
    pod_root: Path | None  # root of the artifacts; None: Kubeflow's launcher is not simulated


def run_container(container: Container) -> Values:
    """Run a container, after its driver if it has one, and return its outputs."""
    if container.pod_root is None:
        _run_commands(container, container.executor_input, None)
        return _outputs(container.executor_input["outputs"])
    with start_pod(container.executor_input, container.log.parent, container.pod_root) as pod:
        _run_commands(container, pod.executor_input, pod)
        made = _outputs(pod.executor_input["outputs"])
        pod.upload(made.parameters)
        return made


def _run_commands(container: Container, executor_input: ExecutorInput, pod: Pod | None) -> None:
    spec, pools = container.executor.get("container"), []
    if spec is None:
        pools = container.executor["customJob"]["customJob"]["jobSpec"]["workerPoolSpecs"]
        spec = pools[0]["containerSpec"]
    replicas = [int(pool.get("replicaCount", 1)) for pool in pools]
    driver = spec.get("lifecycle", {}).get("preCacheCheck")
    variables = {each["name"]: each.get("value", "") for each in spec.get("env", [])}
    secrets = {name: os.environ[name] for name in container.secrets if name in os.environ}
    variables = secrets | variables
    env = {
        **(os.environ if pod is None else pod_environment(container.name, pod.disk)),
        "TF_USE_LEGACY_KERAS": "0",
        REPLAY: "1",
        "PYTHONPATH": os.pathsep.join([os.getcwd(), *map(os.path.abspath, filter(None, sys.path))]),
        **variables,
    }
    for part in [driver, spec] if driver else [spec]:
        arguments = _arguments(part, executor_input, pod, variables)
        refusal = "cannot start: neither command nor args name a program; name one in the spec"
        if not arguments or (refusal := refuse_long_arguments(arguments)):
            raise CommandFailed(refusal)
        if arguments[0] in ("python", "python3"):
            arguments[0] = sys.executable
        if container.timeout is not None:
            limit = ["timeout", "--foreground", "--kill-after=10", f"{container.timeout:f}"]
            arguments = [*limit, *arguments]
        run = _run_workers if sum(replicas) > 1 else _run
        code, of = run(arguments, env, container.log, replicas)
        if container.timeout is not None and code == 124:
            raise CommandFailed(f"was ended after its timeout of {container.timeout:g} s{of}")
        if code:
            raise CommandFailed(f"{describe_end(code)}{of}")


def _arguments(
    part: JsonMapping, executor_input: ExecutorInput, pod: Pod | None, env: Mapping[str, str]
) -> list[str]:
    """Return the arguments of a container's command, or of its driver's."""
    arguments = [*part.get("command", []), *part.get("args", [])]
    if pod is None:
        return [Placeholders(executor_input).fill(argument) for argument in arguments]
    # The launcher, which fills placeholders, gets arguments and ExecutorInput from the kubelet.
    given = expand_word(as_json(executor_input), env)
    placeholders = Placeholders(json.loads(given), pod.path_of)
    return [placeholders.fill(expand_word(argument, env)) for argument in arguments]


def _run(
    arguments: list[str], env: Mapping[str, str], log: Path, replicas: Sequence[int]
) -> tuple[int, str]:
    """Run a process, append its output to a file, and return its exit code.

    If this process is stopped early, the child gets SIGTERM, and SIGKILL 10 seconds later.
    """
    with log.open("ab") as stream:
        try:
            child = subprocess.Popen(
                arguments,
                stdout=stream,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=env,
            )
        except OSError as error:  # no such program, or too long arguments and variables
            raise CommandFailed(
                f"cannot start {arguments[0]}: {error.strerror}. If only the image has the "
                "program, replay inside it"
            ) from None
        try:
            return child.wait(), ""
        except BaseException:
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(10)
            child.kill()
            raise


def _run_workers(
    arguments: list[str], env: Mapping[str, str], log: Path, replicas: Sequence[int]
) -> tuple[int, str]:
    """Run a process as every replica of a CustomJob's worker pools, with TF_CONFIG as on Vertex.

    The first pool is the chief, the second the workers, the third the parameter servers. Each
    replica also has a log in the folder `workers` next to the log.
    """
    chiefs, workers, servers = (*replicas, 0, 0)[:3]
    if chiefs != 1 or workers < 1 or len(replicas) > 3:
        raise CommandFailed(
            f"has worker pools of {replicas} replicas; known are 1 chief, workers, servers"
        )
    with log.open("a", encoding="utf-8") as stream:
        try:
            launch(
                arguments,
                workers=workers,
                chief=True,
                parameter_servers=servers,
                log_dir=log.parent / "workers",
                env=env,
                on_line=lambda name, line: print(f"[{name}] {line}", file=stream, flush=True),
            )
        except WorkersFailed as error:
            return error.failed[0].code, f" (its {error.failed[0].name})"
    return 0, ""


def _outputs(outputs: JsonMapping) -> Values:
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
    files = {key: Path(place["outputFile"]) for key, place in outputs["parameters"].items()}
    parameters = {key: file.read_text() for key, file in files.items() if file.exists()}
    return Values(artifacts, {**parameters, **output.get("parameterValues", {})})
