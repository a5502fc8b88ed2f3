"""Run a container of a compiled pipeline as processes of this machine's Python.

For Kubeflow it simulates the driver and launcher around a node's command, so that a replay fails
where the platform would. docs/replay.md lists the rules, with their sources in the repository
kubeflow/pipelines. A pod's disk is a folder that is removed when the node has ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.targets.long_values import as_json, refuse_long_arguments
from trainer_module.devices.local_cluster import WorkersFailed, describe_end, launch
from trainer_module.devices.process import REPLAY

# Of KFP's pipelineSpec; `{{$}}` is the whole ExecutorInput.
_PLACEHOLDER = re.compile(r"\{\{\$(.*?)\}\}")
_STEP = re.compile(r"\.(\w+)|\['([^']*)'\]")
_LOGS = "executor-logs"
_VARIABLE = re.compile(r"\$\$|\$\(([^)]*)\)")
# This machine replaces the image: its Python, its libraries, its devices.
_OF_THE_IMAGE = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "TMPDIR")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class CommandFailed(Exception):
    """A container's command failed, or the platform would not start it; the message says why."""


class Values(NamedTuple):
    """Outputs of a task by key. An artifact's value is ExecutorInput's `{"artifacts": [...]}`."""

    artifacts: JsonObject
    parameters: JsonObject


@dataclass(frozen=True)
class Container:
    """The container of a task."""

    name: str
    executor: JsonObject  # its `container`, or its `customJob` of one or several worker pools
    executor_input: JsonObject
    log: Path
    timeout: float | None  # in seconds
    secrets: tuple[str, ...]  # variables of the cluster; taken from this machine if set here
    pod_root: Path | None  # root of the artifacts; None: Kubeflow's launcher is not simulated


def run_container(container: Container) -> Values:
    """Run a container, after its driver if it has one, and return its outputs."""
    if container.pod_root is None:
        _run_commands(container, container.executor_input, None)
        return _outputs(container.executor_input["outputs"])
    with _start_pod(container.executor_input, container.log.parent, container.pod_root) as pod:
        _run_commands(container, pod.executor_input, pod)
        made = _outputs(pod.executor_input["outputs"])
        pod.upload(made.parameters)
        return made


def _run_commands(container: Container, executor_input: JsonObject, pod: _Pod | None) -> None:
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
        **(os.environ if pod is None else _pod_environment(container.name, pod.disk)),
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
    part: JsonObject, executor_input: JsonObject, pod: _Pod | None, env: Mapping[str, str]
) -> list[str]:
    """Return the arguments of a container's command, or of its driver's."""
    arguments = [*part.get("command", []), *part.get("args", [])]
    if pod is None:
        return [fill_placeholders(argument, executor_input) for argument in arguments]
    # The launcher, which fills placeholders, gets arguments and ExecutorInput from the kubelet.
    given = json.loads(_expand_word(as_json(executor_input), env))
    return [fill_placeholders(_expand_word(each, env), given, pod.path_of) for each in arguments]


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


def _outputs(outputs: JsonObject) -> Values:
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


def fill_placeholders(
    text: str, executor_input: JsonObject, path_of: Callable[[str], str] = str
) -> str:
    """Return a text of a compiled file with each placeholder replaced.

    `path_of` returns the local path of an artifact's URI, for `.path`.

    Raises:
        ValueError: A placeholder refers to a missing value, or has an unknown form.
    """

    def value(placeholder: re.Match[str]) -> str:
        node: JsonValue = executor_input
        steps = [plain or quoted for plain, quoted in _STEP.findall(placeholder[1])]
        if steps[:2] == ["inputs", "parameters"]:
            steps[1] = "parameterValues"
        try:
            for place, step in enumerate(steps):
                if place == len(steps) - 1 and step == "path" and "uri" in node:
                    return path_of(node["uri"])
                node = node[step]
                if isinstance(node, Mapping) and set(node) == {"artifacts"} and place > 1:
                    node = node["artifacts"][0]
        except (KeyError, IndexError, TypeError):
            names = ", ".join(map(repr, node)) if isinstance(node, Mapping) else repr(node)
            raise ValueError(
                f"the placeholder {placeholder[0]} names nothing: there are {names or 'none'}."
            ) from None
        return _as_text(node) if steps else as_json(node)

    return _PLACEHOLDER.sub(value, text)


def _as_text(value: JsonValue) -> str:
    """Return a parameter's value as the platform writes it into an argument.

    A number has no `.0` and no exponent, as in Kubeflow's launcher_v2.go (`FormatFloat(x, 'f')`).
    """
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        # The platform uses doubles, so it also loses the last digit of 2^53 + 1.
        return format(Decimal(repr(float(value))).normalize(), "f")
    return as_json(value)


@dataclass(frozen=True)
class _Pod:
    """One attempt of a node: its disk, the root of all artifacts, the launcher's ExecutorInput."""

    disk: Path
    root: Path
    executor_input: JsonObject

    def path_of(self, uri: str) -> str:
        """Return the path of an artifact on the disk, as the launcher's `LocalPathForURI` does."""
        return str(self.disk / uri.replace("://", "/").lstrip("/"))

    def download(self) -> None:
        """Download the input artifacts."""
        for key, found in self.executor_input["inputs"]["artifacts"].items():
            for source in (Path(artifact["uri"]) for artifact in found["artifacts"]):
                _copy(source, Path(self.path_of(str(source))))
                siblings = source.parent.glob("*") if source.is_relative_to(self.root) else ()
                foreign = [
                    each
                    for each in siblings
                    if each.name.startswith(source.name)
                    and each.name not in (source.name, "log.txt")
                    and (each.is_file() or any(path.is_file() for path in each.rglob("*")))
                ]
                if foreign:
                    raise CommandFailed(
                        f"was not started: its input {key} is {source}, and the launcher would "
                        f"download other artifacts with it, such as {foreign[0]}: no artifact's "
                        "name may begin with another's (Kubeflow up to 2.16.1, "
                        "backend/src/v2/objectstore/object_store.go)"
                    )

    def upload(self, parameters: JsonObject) -> None:
        """Upload the output artifacts, unless a declared output parameter was not written."""
        for name, place in self.executor_input["outputs"]["parameters"].items():
            if name not in parameters:
                raise CommandFailed(
                    f"ended without writing its output parameter {name} to {place['outputFile']} "
                    "(Kubeflow, backend/src/v2/component/launcher_v2.go)"
                )
        outputs = self.executor_input["outputs"]["artifacts"]
        del outputs[_LOGS]  # the replay has a log file
        for found in outputs.values():
            for artifact in found["artifacts"]:
                _copy(Path(self.path_of(artifact["uri"])), Path(artifact["uri"]))


def _expand_word(word: str, env: Mapping[str, str]) -> str:
    """Return an argument as the kubelet changes it, which knows the variables of the pod's spec."""

    def value(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else env.get(found[1], found[0])

    return _VARIABLE.sub(value, word)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    elif source.is_file():
        shutil.copyfile(source, target)


@contextlib.contextmanager
def _start_pod(executor_input: JsonObject, folder: Path, root: Path) -> Iterator[_Pod]:
    """Create a pod's disk with the inputs on it, and remove it at the end."""
    disk = Path(tempfile.mkdtemp(prefix="pod-", dir=folder))
    try:
        outputs = executor_input["outputs"]
        parameters = {
            name: {"outputFile": str(disk / "tmp" / "kfp" / "outputs" / name)}
            for name in outputs["parameters"]
        }
        output_file = str(disk / "tmp" / "kfp_outputs" / "output_metadata.json")
        found = {**outputs, "parameters": parameters, "outputFile": output_file}
        pod = _Pod(disk, root, {**executor_input, "outputs": found})
        pod.download()
        folders = [Path(each["outputFile"]).parent for each in parameters.values()]
        for each in outputs["artifacts"].values():
            folders += [Path(pod.path_of(a["uri"])).parent for a in each["artifacts"]]
        for place in (disk / "home", *folders):
            place.mkdir(parents=True, exist_ok=True)
        yield pod
    finally:
        shutil.rmtree(disk, ignore_errors=True)


def _pod_environment(name: str, disk: Path) -> dict[str, str]:
    """Return the variables of a pod whose image is replaced by this machine."""
    return {
        **{each: os.environ[each] for each in _OF_THE_IMAGE if each in os.environ},
        "PATH": f"{Path(sys.executable).parent}:{_SYSTEM_PATH}",
        "HOME": str(disk / "home"),
        "PYTHONUNBUFFERED": "1",
        "KFP_POD_NAME": name.lower(),
        "KFP_POD_UID": name.lower(),
    }


def add_executor_logs(outputs: JsonObject, folder: Path) -> None:
    """Add the output that Kubeflow's driver adds to ExecutorInput's outputs, in place."""
    artifact = {"name": _LOGS, "uri": f"{folder}/{_LOGS}", "metadata": {}}
    kind = {"schemaTitle": "system.Artifact"}
    outputs["artifacts"][_LOGS] = {"artifacts": [{**artifact, "type": kind}]}


def as_input(artifact: JsonObject) -> JsonObject:
    """Return an artifact as Kubeflow's driver passes it to the next task.

    Its type is empty, and its name and metadata are what the metadata store keeps
    (backend/src/v2/metadata: client.go, converter.go).
    """
    kept = {key: _as_stored(value) for key, value in artifact.get("metadata", {}).items()}
    return {
        "name": str(zlib.crc32(artifact["uri"].encode())),
        "uri": artifact["uri"],
        "type": {"instanceSchema": ""},
        "metadata": {"display_name": artifact.get("name", ""), **kept},
    }


def _as_stored(value: JsonValue) -> JsonValue:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, list):
        return {"list": value}
    return {"struct": value} if isinstance(value, Mapping) else value
