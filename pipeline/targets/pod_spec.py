"""The Kubernetes settings of a node, in the format of KFP's package kfp-kubernetes.

`tests/pipeline/targets/golden/kfp-kubernetes.yaml` is that package's output for the same settings.
Names are given twice, as in that package: the drivers of KFP read `...Parameter` from 2.5 on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipeline.common.json_types import JsonObject
from pipeline.config.cluster import DEFAULT_NODE, KubeflowConfig
from pipeline.config.kubernetes import SHARED_MEMORY_PATH, NodeAffinityTerm, Requirement
from pipeline.targets.spec_types import Container

# KFP's argocompiler/container.go mounts an emptyDir at each of these, where the launcher writes.
# Argo merges the driver's patch into the pod strategically: of mounts at one path the later one
# stays, so a volume that is mounted here replaces the emptyDir.
_SCRATCH_PATHS = {"gs": "/gcs", "s3": "/s3"}
# Cannot be the name of a claim: KFP names the volume of a claim after the claim.
_SCRATCH_VOLUME = "tfx-largebatch-scratch"
_SHARED_MEMORY_VOLUME = "tfx-largebatch-shm"
_EPHEMERAL_STORAGE = "ephemeral-storage"
_GIB = 2**30
_MIB_PER_GIB = 1024


def executor_config(profile: KubeflowConfig, node: str) -> JsonObject:
    """Return a node's KubernetesExecutorConfig as JSON values; {} if it has no settings."""
    config = {
        **_metadata(profile, node),
        **_scheduling(profile, node),
        **_volumes(profile, node),
        **_environment(profile),
    }
    if profile.image_pull_secrets:
        config["imagePullSecret"] = [
            {"secretName": name, "secretNameParameter": _constant(name)}
            for name in profile.image_pull_secrets
        ]
    if profile.image_pull_policy:
        config["imagePullPolicy"] = profile.image_pull_policy
    if minutes := profile.of_node(node).timeout_minutes:
        config["activeDeadlineSeconds"] = str(max(1, round(60 * minutes)))
    return {name: value for name, value in config.items() if value}


def scratch_path(profile: KubeflowConfig) -> str | None:
    """Return where the launcher stores the artifacts of the profile's bucket in a pod, or None."""
    return _SCRATCH_PATHS.get(profile.pipeline_root.partition("://")[0])


def reserve_disk(container: Container, gib: float) -> None:
    """Add a request and a limit of ephemeral storage to a container without an accelerator.

    KFP has no field for it. Its driver copies type and count of the accelerator to the container's
    limits, for any resource type (initPodSpecPatch in backend/src/v2/driver), and Kubernetes uses
    a limit as the request.
    """
    accelerator = {"type": _EPHEMERAL_STORAGE, "count": str(round(gib * _GIB))}
    container.setdefault("resources", {})["accelerator"] = accelerator


def pod_refusals(profile: KubeflowConfig) -> Iterator[str]:
    """Yield the contradictions between a profile's fields and those of its nodes."""
    section = profile.section
    for name in profile.resources or {DEFAULT_NODE: None}:
        node, pod = profile.of_node(name), profile.pod_settings(name)
        if pod.shm_gib and node.memory_gib and pod.shm_gib > node.memory_gib:
            yield (
                f"{section}.shm_gib={pod.shm_gib:g}: counts as memory of {name}, which gets "
                f"{node.memory_gib:g} GiB; use less, or more memory_gib."
            )
        if pod.scratch_volume and not scratch_path(profile):
            yield (
                f"{section}.scratch_volume: the launcher keeps artifacts of "
                f"{profile.pipeline_root} at no path that a volume can take; use a gs:// or s3:// "
                "bucket, or remove it."
            )


def _metadata(profile: KubeflowConfig, node: str) -> JsonObject:
    annotations = profile.pod_settings(node).annotations
    parts = {"labels": profile.labels, "annotations": annotations}
    return {
        "podMetadata": {name: dict(sorted(part.items())) for name, part in parts.items() if part}
    }


def _scheduling(profile: KubeflowConfig, node: str) -> JsonObject:
    pod = profile.pod_settings(node)
    tolerations = []
    for each in pod.tolerations or ():
        seconds = each.toleration_seconds
        tolerations.append(
            _given(
                key=each.key,
                operator=each.operator,
                value=each.value,
                effect=each.effect,
                tolerationSeconds=None if seconds is None else str(seconds),
            )
        )
    selector = pod.node_selector
    return {
        "nodeSelector": {"labels": dict(sorted(selector.items()))} if selector else None,
        "tolerations": tolerations,
        "nodeAffinity": [_affinity(term) for term in pod.affinity or ()],
    }


def _affinity(term: NodeAffinityTerm) -> JsonObject:
    return _given(
        matchExpressions=[_requirement(each) for each in term.match_expressions] or None,
        matchFields=[_requirement(each) for each in term.match_fields] or None,
        weight=term.weight,
    )


def _requirement(requirement: Requirement) -> JsonObject:
    return _given(
        key=requirement.key, operator=requirement.operator, values=list(requirement.values) or None
    )


def _volumes(profile: KubeflowConfig, node: str) -> JsonObject:
    pod = profile.pod_settings(node)
    found: JsonObject = {
        "pvcMount": [
            _given(
                constant=volume.claim,
                pvcNameParameter=_constant(volume.claim),
                mountPath=volume.mount_path,
                subPath=volume.sub_path,
            )
            for volume in pod.volumes or ()
        ]
    }
    if pod.shm_gib:
        # No driver up to KFP 2.17 reads `enabled_shared_memory` of the same proto.
        found["emptyDirMounts"] = [
            {
                "volumeName": _SHARED_MEMORY_VOLUME,
                "mountPath": SHARED_MEMORY_PATH,
                "medium": "Memory",
                "sizeLimit": _quantity(pod.shm_gib),
            }
        ]
    if (scratch := pod.scratch_volume) and (path := scratch_path(profile)):
        found["genericEphemeralVolume"] = [
            _given(
                volumeName=_SCRATCH_VOLUME,
                mountPath=path,
                accessModes=["ReadWriteOnce"],
                size=_quantity(scratch.size_gib),
                defaultStorageClass=True if scratch.storage_class is None else None,
                storageClassName=scratch.storage_class,
            )
        ]
    return found


def _environment(profile: KubeflowConfig) -> JsonObject:
    return {
        # Without `secretNameParameter`: every version reads this form.
        "secretAsEnv": [
            {
                "secretName": secret,
                "keyToEnv": [{"secretKey": k, "envVar": v} for k, v in sorted(keys.items())],
            }
            for secret, keys in sorted(profile.secrets.items())
        ],
        "fieldPathAsEnv": [
            {"name": name, "fieldPath": path} for name, path in sorted(profile.field_env.items())
        ],
    }


def _constant(value: str) -> JsonObject:
    return {"runtimeValue": {"constant": value}}


def _given(**fields: Any) -> JsonObject:
    return {name: value for name, value in fields.items() if value is not None}


def _quantity(gib: float) -> str:
    """Return a size in the format of Kubernetes."""
    whole = gib == round(gib)
    return f"{round(gib)}Gi" if whole else f"{max(1, round(gib * _MIB_PER_GIB))}Mi"
