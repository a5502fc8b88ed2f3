"""Simulate Kubeflow's driver and launcher around a node's command on this machine.

`kubeflow_rules` lists each rule with its source. A pod's disk is a folder that is removed when the
node has ended.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.replay import kubeflow_rules as rules
from pipeline.replay.object_stores import ObjectStore, object_store
from pipeline.targets.spec_types import Artifact, ExecutorInput, JsonMapping

LOGS = "executor-logs"
_VARIABLE = re.compile(r"\$\$|\$\(([^)]*)\)")


class PodError(Exception):
    """The platform would fail this node; the message says why."""


@dataclass(frozen=True)
class Pod:
    """One attempt of a node.

    Attributes:
        disk: The folder that simulates the pod's disk.
        store: The store of the artifacts.
        root: Root of the artifacts in the store; others are not downloaded.
        executor_input: The launcher's ExecutorInput.
    """

    disk: Path
    store: ObjectStore
    root: str
    executor_input: ExecutorInput

    @property
    def home(self) -> Path:
        """HOME of the command."""
        return self.disk / "home"

    def path_of(self, uri: str) -> str:
        """Return the local path of an artifact, as the launcher's `LocalPathForURI` does."""
        return str(self.disk / uri.replace("://", "/").lstrip("/"))

    def download(self) -> None:
        """Download the input artifacts.

        Raises:
            PodError: An object cannot be written, or is part of another artifact.
        """
        for key, found in self.executor_input["inputs"]["artifacts"].items():
            for artifact in found["artifacts"]:
                uri = artifact["uri"].rstrip("/")
                if uri.startswith(f"{self.root}/"):
                    self._download(key, uri)
                elif "://" not in uri or uri.startswith(("gs://", "s3://")):
                    self._download_imported(uri)

    def upload(self) -> None:
        """Upload the files that the command wrote to the local paths of its output artifacts."""
        for found in self.executor_input["outputs"]["artifacts"].values():
            for artifact in found["artifacts"]:
                local = Path(self.path_of(artifact["uri"]))
                files = [local] if local.is_file() else sorted(local.rglob("*"))
                for path in files:
                    if path.is_file():
                        inside = path.relative_to(local).as_posix()
                        place = artifact["uri"] if path == local else f"{artifact['uri']}/{inside}"
                        self.store.upload(path, place)

    def check_output_parameters(self, written: JsonMapping) -> None:
        """Check that every declared output parameter was written.

        Raises:
            PodError: A parameter is missing.
        """
        for name, place in self.executor_input["outputs"]["parameters"].items():
            if name not in written:
                raise PodError(
                    f"ended without writing its output parameter {name} to {place['outputFile']} "
                    f"({rules.OUTPUT_PARAMETERS})"
                )

    def arguments(self, words: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
        """Return a command line with variables replaced as by the kubelet."""

        def value(found: re.Match[str]) -> str:
            return "$" if found[0] == "$$" else env.get(found[1], found[0])

        return tuple(_VARIABLE.sub(value, word) for word in words)

    def _download_imported(self, uri: str) -> None:
        """Download an importer's artifact that is outside the root."""
        store = object_store(uri)
        for place in store.keys(uri):
            if place == uri or place.startswith(f"{uri}/"):
                path = Path(self.path_of(place))
                path.parent.mkdir(parents=True, exist_ok=True)
                store.download(place, path)

    def _download(self, key: str, uri: str) -> None:
        foreign = []
        for place in self.store.keys(uri):
            if place != uri and not place.startswith(f"{uri}/"):
                foreign.append(place)
                continue
            path = Path(self.path_of(place))  # drops a trailing slash: the marker becomes a file
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self.store.download(place, path)
            except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
                raise PodError(
                    f"was not started: the input {key} cannot be downloaded: "
                    f"mkdir {error.filename}: not a directory, since the object {place} is below "
                    f"one whose name ends in / ({rules.DOWNLOAD})"
                ) from None
        if foreign:
            raise PodError(
                f"was not started: its input {key} is {uri}, and the launcher would download "
                f"{len(foreign)} objects of other artifacts with it, such as {foreign[0]}: no "
                f"artifact's name may begin with another's ({rules.PREFIX})"
            )


@contextmanager
def start_pod(
    executor_input: ExecutorInput, folder: Path, store: ObjectStore, root: str
) -> Iterator[Pod]:
    """Create a pod's disk with the inputs on it, and remove it at the end.

    Raises:
        PodError: The inputs cannot be downloaded.
    """
    disk = Path(tempfile.mkdtemp(prefix="pod-", dir=folder))
    try:
        outputs = executor_input["outputs"]
        parameters = {
            name: {"outputFile": str(disk / "tmp" / "kfp" / "outputs" / name)}
            for name in outputs["parameters"]
        }
        output_file = str(disk / "tmp" / "kfp_outputs" / "output_metadata.json")
        found = {**outputs, "parameters": parameters, "outputFile": output_file}
        pod = Pod(disk, store, root, {**executor_input, "outputs": found})
        pod.download()
        folders = [Path(each["outputFile"]).parent for each in parameters.values()]
        for each in outputs["artifacts"].values():
            folders += [Path(pod.path_of(a["uri"])).parent for a in each["artifacts"]]
        for place in (pod.home, *folders):
            place.mkdir(parents=True, exist_ok=True)
        yield pod
    finally:
        shutil.rmtree(disk, ignore_errors=True)


def add_executor_logs(outputs: JsonObject, place: str) -> None:
    """Add the output that Kubeflow's driver adds to ExecutorInput's outputs, in place."""
    artifact = {
        "name": LOGS,
        "uri": f"{place}/{LOGS}",
        "type": {"schemaTitle": "system.Artifact"},
        "metadata": {},
    }
    outputs["artifacts"][LOGS] = {"artifacts": [artifact]}


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
