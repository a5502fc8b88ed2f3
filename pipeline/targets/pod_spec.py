"""The Kubernetes settings of a node, in the format of KFP's package kfp-kubernetes.

`tests/pipeline/targets/golden/kfp-kubernetes.yaml` is that package's output for the same settings.
"""

from __future__ import annotations

from pipeline.common.json_types import JsonObject
from pipeline.config.cluster import KubeflowConfig
from pipeline.targets.spec_types import Container

_EPHEMERAL_STORAGE = "ephemeral-storage"
_GIB = 2**30
# The drivers of KFP read these names from 2.5 on, and the plain ones before.
_NAMES = {
    "imagePullSecret": ("secretName", "secretNameParameter"),
    "configMapAsEnv": ("configMapName", "configMapNameParameter"),
    "pvcMount": ("constant", "pvcNameParameter"),
}


def executor_config(profile: KubeflowConfig, node: str) -> JsonObject:
    """Return a node's KubernetesExecutorConfig as JSON values; {} if it has no settings."""
    config = profile.pod_of(node)
    for field, (name, parameter) in _NAMES.items():
        for item in config.get(field, ()):
            item.setdefault(parameter, {"runtimeValue": {"constant": item[name]}})
    for toleration in config.get("tolerations", ()):
        if "tolerationSeconds" in toleration:  # an int64, which JSON of protobuf has as a text
            toleration["tolerationSeconds"] = str(toleration["tolerationSeconds"])
    metadata = config.get("podMetadata", {})
    labels = {**profile.labels, **metadata.get("labels", {})}
    if labels:
        config["podMetadata"] = {**metadata, "labels": labels}
    # Without `secretNameParameter`: every version reads this form.
    config["secretAsEnv"] = [
        {
            "secretName": secret,
            "keyToEnv": [{"secretKey": k, "envVar": v} for k, v in sorted(keys.items())],
        }
        for secret, keys in sorted(profile.secrets.items())
    ]
    if minutes := profile.of_node(node).timeout_minutes:
        config["activeDeadlineSeconds"] = str(max(1, round(60 * minutes)))
    return {name: value for name, value in config.items() if value}


def reserve_disk(container: Container, gib: float) -> None:
    """Add a request and a limit of ephemeral storage to a container without an accelerator.

    KFP has no field for it. Its driver copies type and count of the accelerator to the container's
    limits, for any resource type (initPodSpecPatch in backend/src/v2/driver), and Kubernetes uses
    a limit as the request.
    """
    accelerator = {"type": _EPHEMERAL_STORAGE, "count": str(round(gib * _GIB))}
    container.setdefault("resources", {})["accelerator"] = accelerator
