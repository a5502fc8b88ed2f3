"""A Trainer on several workers of Kubeflow: its container starts a TFJob and follows it.

A task of Kubeflow Pipelines is one pod. So the Trainer's container becomes a small launcher
(`tfjob_launcher`), and a TFJob of the Training Operator (kubeflow.org/v1) runs the workers: pods
with the same image, arguments and settings. The operator sets TF_CONFIG, with which the trainer
finds its workers, and supports a chief and parameter servers; Trainer v2 has no runtime for
TensorFlow. The fields of a KubernetesExecutorConfig become the parts of a pod as in KFP's driver
(`initPodSpecPatch` and `extendPodSpecPatch` in backend/src/v2/driver).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence

from pipeline.common.json_types import JsonObject
from pipeline.graph.node_names import NodeName

API_GROUP, API_VERSION, PLURAL = "kubeflow.org", "v1", "tfjobs"
LAUNCHER = ("python", "-m", "pipeline.targets.tfjob_launcher")
MANIFEST = "--tfjob"
"""The launcher's own argument: the manifest, without name and arguments."""

RESULT = "--result"
"""The argument of the job's pods: the place where the chief writes the ExecutorOutput."""

CONTAINER = "tensorflow"
"""The name that the Training Operator requires of a TFJob's container."""

_ROLES = ("Chief", "Worker", "PS")

# For TensorFlow, which copies the chief's result.
_LAUNCHER_RESOURCES = {"cpuLimit": 1.0, "memoryLimit": 2.0}
# Placement of the workers only: the launcher does not need a GPU node.
_OF_THE_WORKERS = ("nodeSelector", "tolerations", "nodeAffinity", "emptyDirMounts", "pvcMount")
# The launcher's pod stores the artifacts that Kubeflow downloads; workers read the bucket.
_OF_THE_LAUNCHER = ("genericEphemeralVolume",)
# A job whose launcher was killed is removed this many seconds after it ends.
_SECONDS_KEPT = 3600
# Workers must reach each other and end: a service mesh's proxy prevents both.
_NO_SIDECAR = {"sidecar.istio.io/inject": "false"}
# On SIGTERM, training saves a checkpoint before it ends.
_GRACE_SECONDS = 120
# Print lines of the log immediately.
_UNBUFFERED = {"name": "PYTHONUNBUFFERED", "value": "1"}
# Of a KubernetesExecutorConfig; activeDeadlineSeconds becomes the job's.
_KNOWN_FIELDS = {
    *("podMetadata", "secretAsEnv", "configMapAsEnv", "fieldPathAsEnv", "nodeSelector"),
    *("tolerations", "nodeAffinity", "imagePullSecret", "imagePullPolicy", "emptyDirMounts"),
    *("pvcMount", "genericEphemeralVolume", "activeDeadlineSeconds"),
}


def launch_workers(spec: JsonObject, pods: JsonObject, pools: Sequence[int]) -> None:
    """Make the Trainer of a pipelineSpec a launcher of a TFJob, in place.

    `pods` are the KubernetesExecutorConfigs by executor; `pools` as of `vertex.worker_pools`.
    """
    label = spec["components"][NodeName.TRAINER]["executorLabel"]
    container = spec["deploymentSpec"]["executors"][label]["container"]
    config = pods.get(label, {})
    workers = {key: value for key, value in config.items() if key not in _OF_THE_LAUNCHER}
    manifest = _tfjob_manifest(spec["pipelineInfo"]["name"], container, workers, pools)
    container["command"] = list(LAUNCHER)
    container["args"] = [MANIFEST, json.dumps(manifest, sort_keys=True), *container["args"]]
    container["resources"] = dict(_LAUNCHER_RESOURCES)
    for field in _OF_THE_WORKERS:
        config.pop(field, None)


def _tfjob_manifest(
    pipeline: str, container: JsonObject, config: JsonObject, pools: Sequence[int]
) -> JsonObject:
    """Return the TFJob of a node, without its name and its containers' arguments."""
    template = _pod_template(container, config)
    policy: JsonObject = {
        # The launcher reads the logs of pods that have ended, then deletes the job.
        "cleanPodPolicy": "None",
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": _SECONDS_KEPT,
    }
    if seconds := config.get("activeDeadlineSeconds"):
        policy["activeDeadlineSeconds"] = int(seconds)
    # Kubeflow's retries start the whole job again, from its last checkpoint.
    replica = {"restartPolicy": "Never", "template": template}
    replicas = {
        role: {"replicas": count, **copy.deepcopy(replica)}
        for role, count in zip(_ROLES, pools, strict=False)
        if count
    }
    return {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": "TFJob",
        "metadata": {"labels": {"pipelines.kubeflow.org/pipeline": pipeline}},
        "spec": {"runPolicy": policy, "tfReplicaSpecs": replicas},
    }


def _pod_template(container: JsonObject, config: JsonObject) -> JsonObject:
    """Return a PodTemplateSpec of a node's container and KubernetesExecutorConfig."""
    if unknown := sorted(set(config) - _KNOWN_FIELDS):
        raise ValueError(
            f"{unknown[0]}: a setting of a node's pod that a TFJob's pods do not get; known are "
            f"{', '.join(sorted(_KNOWN_FIELDS))}"
        )
    main: JsonObject = {
        "name": CONTAINER,
        "image": container["image"],
        "command": list(LAUNCHER),
        "env": [_UNBUFFERED, *map(dict, container.get("env", [])), *_variables(config)],
        "resources": _container_resources(container.get("resources", {})),
    }
    if policy := config.get("imagePullPolicy"):
        main["imagePullPolicy"] = policy
    spec = {
        "containers": [main],
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        **_placement(config),
    }
    volumes: JsonObject = {}
    for name, source, mount in _volumes(config):
        volumes.setdefault(name, {"name": name, **source})
        main.setdefault("volumeMounts", []).append({"name": name, **mount})
    if volumes:
        spec["volumes"] = list(volumes.values())
    metadata = config.get("podMetadata", {})
    parts = {part: _NO_SIDECAR | metadata.get(part, {}) for part in ("labels", "annotations")}
    return {"metadata": parts, "spec": spec}


def _container_resources(resources: JsonObject) -> dict[str, dict[str, str]]:
    """Return a container's limits in Kubernetes' format, memory in units of 10^9 bytes."""
    limits = {}
    if "cpuLimit" in resources:
        limits["cpu"] = f"{resources['cpuLimit']:g}"
    if "memoryLimit" in resources:
        limits["memory"] = f"{resources['memoryLimit']}G"
    if accelerator := resources.get("accelerator"):
        limits[accelerator["resourceType"]] = str(accelerator["resourceCount"])
    return {"limits": limits} if limits else {}


def _variables(config: JsonObject) -> Iterator[JsonObject]:
    """Yield the variables of a container."""
    for kind in ("secret", "configMap"):
        for each in config.get(f"{kind}AsEnv", []):
            name = each[f"{kind}Name"]
            for key in each["keyToEnv"]:
                source: JsonObject = {"name": name, "key": key[f"{kind}Key"]}
                if each.get("optional"):
                    source["optional"] = True
                yield {"name": key["envVar"], "valueFrom": {f"{kind}KeyRef": source}}
    for each in config.get("fieldPathAsEnv", []):
        source = {"fieldRef": {"fieldPath": each["fieldPath"]}}
        yield {"name": each["name"], "valueFrom": source}


def _placement(config: JsonObject) -> JsonObject:
    """Return the fields of a PodSpec that say where it runs, and with which logins."""
    fields: JsonObject = {}
    if selector := config.get("nodeSelector"):
        fields["nodeSelector"] = dict(selector["labels"])
    seconds = "tolerationSeconds"
    if tolerations := config.get("tolerations"):
        fields["tolerations"] = [
            {**each, **({seconds: int(each[seconds])} if seconds in each else {})}
            for each in tolerations
        ]
    required, preferred = [], []
    for each in config.get("nodeAffinity", []):
        term = {key: each[key] for key in ("matchExpressions", "matchFields") if key in each}
        if "weight" in each:
            preferred.append({"weight": int(each["weight"]), "preference": term})
        else:
            required.append(term)
    affinity: JsonObject = {}
    if required:
        terms = {"nodeSelectorTerms": required}
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = terms
    if preferred:
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    if affinity:
        fields["affinity"] = {"nodeAffinity": affinity}
    if secrets := config.get("imagePullSecret"):
        fields["imagePullSecrets"] = [{"name": each["secretName"]} for each in secrets]
    return fields


def _volumes(config: JsonObject) -> Iterator[tuple[str, JsonObject, JsonObject]]:
    """Yield name, source and mount of each volume."""
    for each in config.get("emptyDirMounts", []):
        source = {key: each[key] for key in ("medium", "sizeLimit") if key in each}
        yield each["volumeName"], {"emptyDir": source}, {"mountPath": each["mountPath"]}
    for each in config.get("genericEphemeralVolume", []):
        claim = {key: each[key] for key in ("accessModes", "storageClassName") if key in each}
        claim["resources"] = {"requests": {"storage": each["size"]}}
        source = {"ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
        yield each["volumeName"], source, {"mountPath": each["mountPath"]}
    for each in config.get("pvcMount", []):
        name = each["constant"]
        mount = {key: each[key] for key in ("mountPath", "subPath") if each.get(key)}
        yield name, {"persistentVolumeClaim": {"claimName": name}}, mount
