"""A Trainer on several workers of Kubeflow: its container starts a TFJob and follows it.

A task of Kubeflow Pipelines is one pod. So the Trainer's container becomes a small launcher
(`tfjob_launcher`), and a TFJob of the Training Operator (kubeflow.org/v1) runs the workers: pods
with the same image, the same arguments, and the profile's settings for the Trainer. It is a TFJob
and not a TrainJob of Trainer v2: the Training Operator sets TF_CONFIG, with which the trainer finds
its workers, and supports a chief and parameter servers; Trainer v2 has no runtime for TensorFlow.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence

from pipeline.common.json_types import JsonObject
from pipeline.graph.node_names import NodeName
from pipeline.targets.spec_types import Container, Manifest, PipelineSpec
from pipeline.targets.tfjob_pod import pod_template

API_GROUP, API_VERSION, PLURAL = "kubeflow.org", "v1", "tfjobs"
LAUNCHER = ("python", "-m", "pipeline.targets.tfjob_launcher")
WORKER = ("python", "-m", "pipeline.targets.tfjob_worker")
MANIFEST = "--tfjob"
"""The launcher's own argument: the manifest, without name and arguments."""

ROLES = ("Chief", "Worker", "PS")

# For TensorFlow, which copies the chief's result.
_LAUNCHER_RESOURCES = {"cpuLimit": 1.0, "memoryLimit": 2.0}
# A profile's disk is passed as an accelerator: KFP has no field for it.
_DISK = "ephemeral-storage"
# Placement of the workers only: the launcher does not need a GPU node.
_OF_THE_WORKERS = ("nodeSelector", "tolerations", "nodeAffinity", "emptyDirMounts", "pvcMount")
# The launcher's pod stores the artifacts that Kubeflow downloads; workers read the bucket.
_OF_THE_LAUNCHER = ("genericEphemeralVolume",)
# A job whose launcher was killed is removed this many seconds after it ends.
_SECONDS_KEPT = 3600


def launch_workers(spec: PipelineSpec, platform: JsonObject, pools: Sequence[int]) -> None:
    """Make the Trainer of a pipelineSpec a launcher of a TFJob, in place; `pools` as in vertex."""
    label = spec["components"][NodeName.TRAINER]["executorLabel"]
    container = spec["deploymentSpec"]["executors"][label]["container"]
    parts = platform.get("platforms", {}).get("kubernetes", {}).get("deploymentSpec", {})
    config = parts.get("executors", {}).get(label, {})
    workers = {key: value for key, value in config.items() if key not in _OF_THE_LAUNCHER}
    manifest = tfjob_manifest(spec["pipelineInfo"]["name"], container, workers, pools)
    container["command"] = list(LAUNCHER)
    container["args"] = [MANIFEST, json.dumps(manifest, sort_keys=True), *container["args"]]
    reserved = container.get("resources", {}).get("accelerator", {})
    container["resources"] = dict(_LAUNCHER_RESOURCES)
    if reserved.get("type") == _DISK:
        container["resources"]["accelerator"] = reserved  # artifacts are downloaded to its disk
    for field in _OF_THE_WORKERS:
        config.pop(field, None)


def tfjob_manifest(
    pipeline: str, container: Container, config: JsonObject, pools: Sequence[int]
) -> JsonObject:
    """Return the TFJob of a node, without its name and its containers' arguments."""
    template = pod_template(container, config, list(WORKER))
    policy: JsonObject = {
        # The launcher reads the logs of pods that have ended, then deletes the job.
        "cleanPodPolicy": "None",
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": _SECONDS_KEPT,
    }
    if seconds := config.get("activeDeadlineSeconds"):
        policy["activeDeadlineSeconds"] = int(seconds)
    labels = {"pipelines.kubeflow.org/pipeline": pipeline}
    return {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": "TFJob",
        "metadata": {"labels": labels},
        "spec": {
            "runPolicy": policy,
            "tfReplicaSpecs": {
                role: {
                    "replicas": count,
                    # Kubeflow's retries start the whole job again, from its last checkpoint.
                    "restartPolicy": "Never",
                    "template": copy.deepcopy(template),
                }
                for role, count in zip(ROLES, pools, strict=False)
                if count
            },
        },
    }


def pools_of(manifest: Manifest) -> dict[str, int]:
    """Return the number of replicas of each role."""
    replicas = manifest["spec"]["tfReplicaSpecs"]
    return {role: replicas[role]["replicas"] for role in ROLES if role in replicas}
