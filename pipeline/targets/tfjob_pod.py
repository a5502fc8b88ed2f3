"""Convert a node of a pipelineSpec to the pod template of a TFJob's replicas.

KFP's driver turns a container and its KubernetesExecutorConfig into a pod
(`initPodSpecPatch` and `extendPodSpecPatch` in backend/src/v2/driver). Here the same fields become
the same parts of a pod, so that workers run where and how the node would run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.targets.spec_types import Container, JsonMapping, PodSpec

CONTAINER = "tensorflow"
"""The name that the Training Operator requires of a TFJob's container."""

# Workers must reach each other and end: a service mesh's proxy prevents both.
_NO_SIDECAR = {"sidecar.istio.io/inject": "false"}
# On SIGTERM, training saves a checkpoint before it ends.
_GRACE_SECONDS = 120
_RESOURCES = {
    "cpuLimit": ("limits", "cpu", ""),
    "cpuRequest": ("requests", "cpu", ""),
    "memoryLimit": ("limits", "memory", "G"),
    "memoryRequest": ("requests", "memory", "G"),
    "resourceCpuLimit": ("limits", "cpu", ""),
    "resourceCpuRequest": ("requests", "cpu", ""),
    "resourceMemoryLimit": ("limits", "memory", ""),
    "resourceMemoryRequest": ("requests", "memory", ""),
}
# Print lines of the log immediately.
_UNBUFFERED = {"name": "PYTHONUNBUFFERED", "value": "1"}
_OF_THE_JOB = ("activeDeadlineSeconds",)


def pod_template(container: Container, config: JsonMapping, command: list[str]) -> JsonObject:
    """Return a PodTemplateSpec as JSON values.

    Args:
        container: The node's container in the pipelineSpec: image, variables, resources.
        config: The node's KubernetesExecutorConfig.
        command: The command of the container; its arguments are added when it is started.

    Raises:
        ValueError: The configuration has a field that is not supported here.
    """
    main: JsonObject = {
        "name": CONTAINER,
        "image": container["image"],
        "command": command,
        "env": [_UNBUFFERED, *(dict(each) for each in container.get("env", []))],
        "resources": container_resources(container.get("resources", {})),
    }
    pod = {
        "metadata": {"labels": dict(_NO_SIDECAR), "annotations": dict(_NO_SIDECAR)},
        "spec": {"containers": [main], "terminationGracePeriodSeconds": _GRACE_SECONDS},
    }
    for field, value in config.items():
        if field in _OF_THE_JOB:
            continue
        if field not in _FIELDS:
            raise ValueError(
                f"{field}: a setting of a node's pod that a TFJob's pods do not get; known are "
                f"{', '.join(sorted(_FIELDS))}"
            )
        _FIELDS[field](pod, main, value)
    return pod


def container_resources(given: JsonMapping) -> dict[str, dict[str, str]]:
    """Return a container's `resources` in Kubernetes' format, memory in units of 10^9 bytes."""
    found: dict[str, dict[str, str]] = {}
    for field, (kind, name, unit) in _RESOURCES.items():
        if field in given:
            value = given[field]
            text = f"{value:g}" if isinstance(value, float) and not unit else f"{value}"
            found.setdefault(kind, {})[name] = f"{text}{unit}"
    if accelerator := given.get("accelerator"):
        kind = accelerator.get("resourceType") or accelerator["type"]
        found.setdefault("limits", {})[kind] = str(
            accelerator.get("resourceCount") or accelerator["count"]
        )
    return found


def _metadata(pod: PodSpec, main: Container, value: JsonValue) -> None:
    for part in ("labels", "annotations"):
        pod["metadata"][part].update(value.get(part, {}))


def _variables(
    pod: PodSpec, main: Container, value: JsonValue, *, kind: str, reference: str
) -> None:
    for each in value:
        for key in each["keyToEnv"]:
            source: JsonObject = {"name": _name(each, kind), "key": key[f"{kind}Key"]}
            if each.get("optional"):
                source["optional"] = True
            main["env"].append({"name": key["envVar"], "valueFrom": {reference: source}})


def _fields_of_the_pod(pod: PodSpec, main: Container, value: JsonValue) -> None:
    for each in value:
        source = {"fieldRef": {"fieldPath": each["fieldPath"]}}
        main["env"].append({"name": each["name"], "valueFrom": source})


def _tolerations(pod: PodSpec, main: Container, value: JsonValue) -> None:
    seconds = "tolerationSeconds"
    pod["spec"]["tolerations"] = [
        {**each, seconds: int(each[seconds])} if seconds in each else dict(each) for each in value
    ]


def _node_affinity(pod: PodSpec, main: Container, value: JsonValue) -> None:
    required, preferred = [], []
    for each in value:
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
    pod["spec"]["affinity"] = {"nodeAffinity": affinity}


def _empty_dirs(pod: PodSpec, main: Container, value: JsonValue) -> None:
    for each in value:
        source = {key: each[key] for key in ("medium", "sizeLimit") if key in each}
        _mount(pod, main, each["volumeName"], each["mountPath"], {"emptyDir": source})


def _claims(pod: PodSpec, main: Container, value: JsonValue) -> None:
    for each in value:
        claim = each.get("constant") or _constant(each["pvcNameParameter"])
        volume = {"persistentVolumeClaim": {"claimName": claim}}
        _mount(pod, main, claim, each["mountPath"], volume, each.get("subPath"))


def _ephemeral_volumes(pod: PodSpec, main: Container, value: JsonValue) -> None:
    for each in value:
        claim: JsonObject = {
            "accessModes": each["accessModes"],
            "resources": {"requests": {"storage": each["size"]}},
        }
        if "storageClassName" in each:
            claim["storageClassName"] = each["storageClassName"]
        volume = {"ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
        _mount(pod, main, each["volumeName"], each["mountPath"], volume)


def _mount(
    pod: JsonObject,
    main: JsonObject,
    name: str,
    path: str,
    source: JsonObject,
    sub_path: str | None = None,
) -> None:
    volumes = pod["spec"].setdefault("volumes", [])
    if name not in [volume["name"] for volume in volumes]:
        volumes.append({"name": name, **source})
    mount = {"name": name, "mountPath": path, **({"subPath": sub_path} if sub_path else {})}
    main.setdefault("volumeMounts", []).append(mount)


def _name(each: JsonMapping, kind: str) -> str:
    return each.get(f"{kind}Name") or _constant(each[f"{kind}NameParameter"])


def _constant(parameter: JsonMapping) -> str:
    return parameter["runtimeValue"]["constant"]


def _in_spec(pod: PodSpec, name: str, value: JsonValue) -> None:
    pod["spec"][name] = value


_FIELDS: dict[str, Callable[[PodSpec, Container, JsonValue], None]] = {
    "podMetadata": _metadata,
    "secretAsEnv": functools.partial(_variables, kind="secret", reference="secretKeyRef"),
    "configMapAsEnv": functools.partial(_variables, kind="configMap", reference="configMapKeyRef"),
    "fieldPathAsEnv": _fields_of_the_pod,
    "nodeSelector": lambda pod, main, value: _in_spec(pod, "nodeSelector", dict(value["labels"])),
    "tolerations": _tolerations,
    "nodeAffinity": _node_affinity,
    "imagePullSecret": lambda pod, main, value: _in_spec(
        pod, "imagePullSecrets", [{"name": _name(each, "secret")} for each in value]
    ),
    "imagePullPolicy": lambda pod, main, value: main.update(imagePullPolicy=value),
    "emptyDirMounts": _empty_dirs,
    "pvcMount": _claims,
    "genericEphemeralVolume": _ephemeral_volumes,
}
