r"""What the Trainer's container runs on Kubeflow where several workers train: it starts a TFJob.

    python -m pipeline.targets.tfjob_launcher --tfjob MANIFEST \
        --executor_class_path ... --json_serialized_invocation_args ...

It creates the job, shows what its pods write, waits for its end, copies the ExecutorOutput that the
chief wrote to where Kubeflow's launcher reads it, and deletes the job. In a replay, outside of a
cluster, the same commands are processes of this machine.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from pipeline.common.errors import ConfigError
from pipeline.common.object_stores import register_file_systems
from pipeline.common.process_end import end_process
from pipeline.run.interrupts import terminated_by_signal
from pipeline.targets.entry_point import INVOCATION
from pipeline.targets.tfjob import MANIFEST, WORKER, pools_of
from pipeline.targets.tfjob_client import TASK_LABEL, Cluster, JobClient, JobError, Result
from pipeline.targets.tfjob_worker import LAUNCHER_POD, RESULT
from trainer_module.devices.local_cluster import WorkersFailed, launch

_RESULT_FILE = "tfjob_result.json"
# A pod's name is this, a role and a number: of 63 characters at most.
_LONGEST_PREFIX = 38


class Node(NamedTuple):
    """What the container is given.

    Attributes:
        manifest: the TFJob, without name and arguments.
        arguments: of the entry point.
        result: where the chief writes the ExecutorOutput.
        output_file: where Kubeflow's launcher reads it.
    """

    manifest: dict[str, Any]
    arguments: list[str]
    result: str
    output_file: Path

    @classmethod
    def read(cls, argv: Sequence[str]) -> Node:
        """Reads the arguments of the container."""
        arguments = list(argv)
        at = arguments.index(MANIFEST)
        manifest = json.loads(arguments[at + 1])
        del arguments[at : at + 2]
        outputs = json.loads(arguments[arguments.index(INVOCATION) + 1])["outputs"]
        uris = [a["uri"] for each in outputs["artifacts"].values() for a in each["artifacts"]]
        folder = min(uris).rstrip("/").rpartition("/")[0]
        return cls(manifest, arguments, f"{folder}/{_RESULT_FILE}", Path(outputs["outputFile"]))

    @property
    def task(self) -> str:
        """The same for each attempt of this node in this run: a label's value."""
        return hashlib.sha256(self.result.encode()).hexdigest()[:16]

    def complete_manifest(self, owner: dict[str, Any], service_account: str | None) -> Any:
        """Returns the manifest with name, owner and arguments."""
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
            container["env"].append({"name": LAUNCHER_POD, "value": owner["name"]})
            container["args"] = [each.replace("$", "$$") for each in given]
        return manifest


def run_on_cluster(node: Node, client: JobClient) -> Result:
    """Runs the node as a TFJob.

    Args:
        node: what the container is given.
        client: of the cluster.

    Raises:
        JobError: The cluster does not take it; the message says what to do.
    """
    client.delete_earlier(node.task)
    name = client.create(node.complete_manifest(**client.launcher()))
    try:
        return client.follow(name)
    finally:
        try:
            client.delete(name)
        except (JobError, ConnectionError) as error:  # it ends with this pod, whose owner it has
            print(f"TFJob {name} is not deleted now: {error}", flush=True)


def run_on_this_machine(node: Node) -> Result:
    """Runs the job's commands as processes of this machine, with the TF_CONFIG of the operator."""
    pools = pools_of(node.manifest)
    command = [sys.executable, *WORKER[1:], RESULT, node.result, *node.arguments]
    try:
        launch(
            command,
            workers=pools.get("Worker", 0),
            chief=True,
            parameter_servers=pools.get("PS", 0),
            on_line=lambda name, line: print(f"[{name.replace(' ', '-')}] {line}", flush=True),
        )
    except WorkersFailed as error:
        return Result(error.code, f"{error.failed[0].name} ended with code {error.code}")
    return Result(0, "every process ended well")


def main(argv: Sequence[str], *, cluster: Cluster | None = None) -> object:
    """Runs the node; returns the exit code, as of SystemExit.

    Args:
        argv: the program and the arguments of the container.
        cluster: where the job runs; None: that of this pod, or outside of one this machine.
    """
    node = Node.read(argv[1:])
    cluster = cluster or Cluster.of_this_pod(os.environ)
    try:
        register_file_systems(" ".join(argv))
        _remove(node.result)
        with terminated_by_signal():
            if cluster is None:
                result = run_on_this_machine(node)
            else:
                result = run_on_cluster(node, JobClient(cluster))
        print(result.message, flush=True)
        if result.code == 0:
            _copy(node.result, node.output_file)
    except SystemExit as end:
        return end.code
    except (ConfigError, JobError, ConnectionError) as error:
        return str(error)
    return result.code


def _remove(place: str) -> None:
    """Removes what an earlier attempt wrote."""
    from tensorflow.io import gfile

    if gfile.exists(place):
        gfile.remove(place)


def _copy(place: str, to: Path) -> None:
    from tensorflow.io import gfile

    if not gfile.exists(place):
        raise JobError(f"the job succeeded, and its chief wrote no {place}: see the chief's log")
    with gfile.GFile(place) as stream:
        text = stream.read()
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(text, encoding="utf-8")


def main_and_exit(argv: Sequence[str]) -> NoReturn:
    """Runs it as the whole of this process, and ends it with the exit code."""
    end_process(main(argv))


if __name__ == "__main__":
    main_and_exit(sys.argv)
