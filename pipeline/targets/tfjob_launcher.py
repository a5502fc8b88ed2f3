r"""The program of the Trainer's container on Kubeflow if several workers train: it starts a TFJob.

    python -m pipeline.targets.tfjob_launcher --tfjob MANIFEST \
        --executor_class_path ... --json_serialized_invocation_args ...

It creates the job, prints the output of its pods, waits for its end, copies the chief's
ExecutorOutput to the path that Kubeflow's launcher reads, and deletes the job. In a replay, outside
a cluster, the same commands are processes of this machine. Each pod of the job runs it with
`--result s3://.../tfjob_result.json` in place of `--tfjob`: the node's entry point, whose
ExecutorOutput the chief copies next to the node's artifacts, because its disk is another pod's.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject
from pipeline.common.object_stores import register_file_systems
from pipeline.common.process_end import run_and_exit
from pipeline.run.interrupts import terminated_by_signal
from pipeline.targets import entry_point
from pipeline.targets.executor_input import INVOCATION, take_option
from pipeline.targets.tfjob import LAUNCHER, MANIFEST, RESULT
from pipeline.targets.tfjob_client import (
    TASK_LABEL,
    Cluster,
    JobClient,
    JobError,
    watch_launcher,
)
from trainer_module.devices.cluster import cluster_of_environment
from trainer_module.devices.local_cluster import WorkersFailed, describe_end, launch

# Variable with the name of the launcher's pod.
_LAUNCHER_POD = "TFJOB_LAUNCHER_POD"
_RESULT_FILE = "tfjob_result.json"
# A pod's name has this prefix, a role and a number: at most 63 characters.
_LONGEST_PREFIX = 38


class _Node(NamedTuple):
    """The parsed arguments of the container; `result` is where the chief copies ExecutorOutput."""

    manifest: JsonObject
    arguments: list[str]  # of the entry point
    result: str
    output_file: Path  # where Kubeflow's launcher reads ExecutorOutput

    @classmethod
    def read(cls, argv: Sequence[str]) -> _Node:
        """Parse the arguments of the container."""
        arguments = list(argv)
        manifest = json.loads(take_option(arguments, MANIFEST) or "")
        outputs = json.loads(arguments[arguments.index(INVOCATION) + 1])["outputs"]
        uris = [a["uri"] for each in outputs["artifacts"].values() for a in each["artifacts"]]
        folder = min(uris).rstrip("/").rpartition("/")[0]
        return cls(manifest, arguments, f"{folder}/{_RESULT_FILE}", Path(outputs["outputFile"]))

    @property
    def task(self) -> str:
        """A label value that is the same for each attempt of this node in this run."""
        return hashlib.sha256(self.result.encode()).hexdigest()[:16]

    def complete_manifest(self, owner: JsonObject, service_account: str | None) -> Any:
        """Return the manifest with name, owner and arguments."""
        manifest = copy.deepcopy(self.manifest)
        metadata = manifest["metadata"]
        pipeline = metadata["labels"]["pipelines.kubeflow.org/pipeline"]
        attempt = hashlib.sha256(f"{self.result} {owner['uid']}".encode()).hexdigest()[:8]
        metadata["name"] = f"{pipeline[:_LONGEST_PREFIX].rstrip('-')}-{attempt}"
        metadata["labels"][TASK_LABEL] = self.task
        # If the launcher's pod is deleted, Kubernetes deletes the job and its pods.
        metadata["ownerReferences"] = [owner]
        for replica in manifest["spec"]["tfReplicaSpecs"].values():
            pod = replica["template"]["spec"]
            if service_account:
                pod["serviceAccountName"] = service_account
            # Kubernetes replaces $(NAME) by a variable; $$ stands for $.
            given = [RESULT, self.result, *self.arguments]
            (container,) = pod["containers"]
            container["env"].append({"name": _LAUNCHER_POD, "value": owner["name"]})
            container["args"] = [each.replace("$", "$$") for each in given]
        return manifest


def _run_on_cluster(node: _Node, client: JobClient) -> int:
    client.delete_earlier(node.task)
    name = client.create(node.complete_manifest(**client.launcher()))
    try:
        return client.follow(name)
    finally:
        try:
            client.delete(name)
        except (JobError, ConnectionError) as error:  # deleted with this pod, its owner
            print(f"TFJob {name} is not deleted now: {error}", flush=True)


def _run_on_this_machine(node: _Node) -> int:
    """Run the job's commands as processes of this machine, with the TF_CONFIG of the operator."""
    replicas = node.manifest["spec"]["tfReplicaSpecs"]
    command = [sys.executable, *LAUNCHER[1:], RESULT, node.result, *node.arguments]
    try:
        launch(
            command,
            workers=replicas["Worker"]["replicas"],
            chief=True,
            parameter_servers=replicas.get("PS", {}).get("replicas", 0),
            on_line=lambda name, line: print(f"[{name.replace(' ', '-')}] {line}", flush=True),
        )
    except WorkersFailed as error:
        print(f"{error.failed[0].name} {describe_end(error.code)}", flush=True)
        return error.code
    print("every process ended well", flush=True)
    return 0


def main(argv: Sequence[str]) -> object:
    """Run the node of a container's arguments; return the exit code (as for SystemExit)."""
    if RESULT in argv:
        return _run_task(list(argv))
    node = _Node.read(argv[1:])
    cluster = Cluster.of_this_pod()
    try:
        from tensorflow.io import gfile

        register_file_systems(" ".join(argv))
        if gfile.exists(node.result):  # of an earlier attempt
            gfile.remove(node.result)
        with terminated_by_signal():
            if cluster is None:
                code = _run_on_this_machine(node)
            else:
                code = _run_on_cluster(node, JobClient(cluster))
        if code == 0:
            if not gfile.exists(node.result):
                raise JobError(
                    f"the job succeeded, and its chief wrote no {node.result}: see the chief's log"
                )
            with gfile.GFile(node.result) as stream:
                text = stream.read()
            node.output_file.parent.mkdir(parents=True, exist_ok=True)
            node.output_file.write_text(text, encoding="utf-8")
    except SystemExit as end:
        return end.code
    except (ConfigError, JobError, ConnectionError) as error:
        return str(error)
    return code


def _run_task(arguments: list[str]) -> object:
    """Run the entry point as one task of the job, and return the exit code (as for SystemExit)."""
    result = take_option(arguments, RESULT) or ""
    at = arguments.index(INVOCATION) + 1
    executor_input = json.loads(arguments[at])
    with tempfile.TemporaryDirectory(prefix="tfjob-") as folder:
        output = Path(folder) / "executor_output.json"
        executor_input["outputs"]["outputFile"] = str(output)
        arguments[at] = json.dumps(executor_input)
        cluster = cluster_of_environment()
        is_chief = cluster is None or cluster.role == "chief"
        # The chief ends when the launcher has ended.
        if is_chief and (here := Cluster.of_this_pod(_LAUNCHER_POD)):
            threading.Thread(target=watch_launcher, args=(here, _end), daemon=True).start()
        code = entry_point.exit_code(arguments)
        if not code and is_chief:
            from tensorflow.io import gfile

            with gfile.GFile(result, "w") as stream:
                stream.write(output.read_text(encoding="utf-8"))
    return code


def _end(reason: str) -> None:
    """End this process with SIGTERM, so that training saves a checkpoint."""
    print(f"{reason}: this job ends", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    run_and_exit(lambda: main(sys.argv))
