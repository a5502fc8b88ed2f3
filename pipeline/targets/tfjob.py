"""A Trainer on several workers of Kubeflow: its container starts a TFJob and follows it.

A task of Kubeflow Pipelines is one pod. So the Trainer's container becomes a small launcher
(`tfjob_launcher`), and a TFJob of the Training Operator (kubeflow.org/v1) has the workers: pods
with the same image, the same arguments, and what the profile gives the Trainer. A TFJob and not a
TrainJob of Trainer v2: the operator of the first sets TF_CONFIG, by which the trainer finds its
workers, and knows a chief and parameter servers; the second has no runtime for TensorFlow.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

from pipeline.graph.node_names import NodeName
from pipeline.targets.tfjob_pod import pod_template

API_GROUP, API_VERSION, PLURAL = "kubeflow.org", "v1", "tfjobs"
LAUNCHER = ("python", "-m", "pipeline.targets.tfjob_launcher")
WORKER = ("python", "-m", "pipeline.targets.tfjob_worker")
MANIFEST = "--tfjob"
"""The launcher's own argument: the manifest, without name and arguments."""

ROLES = ("Chief", "Worker", "PS")

# TensorFlow, to copy what the chief wrote, and nothing else.
_LAUNCHER_RESOURCES = {"cpuLimit": 1.0, "memoryLimit": 2.0}
# A profile's disk travels as an accelerator: KFP has no field for it.
_DISK = "ephemeral-storage"
# Where workers have to run is not where the launcher has to: it needs no GPU's node.
_OF_THE_WORKERS = (
    "nodeSelector",
    "tolerations",
    "nodeAffinity",
    "emptyDirMounts",
    "pvcMount",
)
# Where the launcher's pod gets the artifacts that Kubeflow downloads; workers read the bucket.
_OF_THE_LAUNCHER = ("genericEphemeralVolume",)
# A job whose launcher was killed ends and is removed after this time.
_SECONDS_KEPT = 3600


def launch_workers(spec: dict[str, Any], platform: dict[str, Any], pools: Sequence[int]) -> None:
    """Makes the Trainer of a pipelineSpec a launcher of a TFJob, in place.

    Args:
        spec: pipelineSpec as JSON values.
        platform: the platform spec of the same file, or {}.
        pools: how many chiefs, workers and parameter servers there are.
    """
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
    pipeline: str, container: dict[str, Any], config: dict[str, Any], pools: Sequence[int]
) -> dict[str, Any]:
    """Returns the TFJob of a node, complete but for its name and its containers' arguments.

    Args:
        pipeline: name of the pipeline.
        container: the node's, of the pipelineSpec.
        config: the node's KubernetesExecutorConfig.
        pools: how many chiefs, workers and parameter servers there are.
    """
    template = pod_template(container, config, list(WORKER))
    policy: dict[str, Any] = {
        # The launcher reads the logs of pods that have ended, then it deletes the job.
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


def pools_of(manifest: dict[str, Any]) -> dict[str, int]:
    """Returns how many replicas each role has."""
    replicas = manifest["spec"]["tfReplicaSpecs"]
    return {role: replicas[role]["replicas"] for role in ROLES if role in replicas}
