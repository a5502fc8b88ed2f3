"""Simulate Kubeflow's driver and launcher around a node's command on this machine.

A replay fails where the platform would. docs/cluster.md lists the rules, with their sources in the
repository kubeflow/pipelines. A pod's disk is a folder that is removed when the node has ended.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.targets.spec_types import Artifact, ExecutorInput, JsonMapping

_LOGS = "executor-logs"
_VARIABLE = re.compile(r"\$\$|\$\(([^)]*)\)")
# This machine replaces the image: its Python, its libraries, its devices.
_OF_THE_IMAGE = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "TMPDIR")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class CommandFailed(Exception):
    """A container's command failed, or the platform would not start it; the message says why."""


@dataclass(frozen=True)
class Pod:
    """One attempt of a node: its disk, the root of all artifacts, the launcher's ExecutorInput."""

    disk: Path
    root: Path
    executor_input: ExecutorInput

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

    def upload(self, parameters: JsonMapping) -> None:
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


def expand_word(word: str, env: Mapping[str, str]) -> str:
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


@contextmanager
def start_pod(executor_input: ExecutorInput, folder: Path, root: Path) -> Iterator[Pod]:
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
        pod = Pod(disk, root, {**executor_input, "outputs": found})
        pod.download()
        folders = [Path(each["outputFile"]).parent for each in parameters.values()]
        for each in outputs["artifacts"].values():
            folders += [Path(pod.path_of(a["uri"])).parent for a in each["artifacts"]]
        for place in (disk / "home", *folders):
            place.mkdir(parents=True, exist_ok=True)
        yield pod
    finally:
        shutil.rmtree(disk, ignore_errors=True)


def pod_environment(name: str, disk: Path) -> dict[str, str]:
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


def as_input(artifact: Artifact) -> JsonObject:
    """Return an artifact as Kubeflow's driver passes it to the next task.

    Its type is empty, its name is a number of the metadata store, and its metadata is what that
    store keeps (backend/src/v2/metadata: client.go, converter.go).
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
