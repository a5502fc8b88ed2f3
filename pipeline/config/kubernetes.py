"""Scheduling and mounts of Kubeflow's pods: fields of `cluster.kubeflow`.

The names are those of Kubernetes, in snake_case. Users would see errors of Kubernetes only when a
pod is created, so each value is checked here.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import pydantic
from pydantic import Field

from pipeline.config.section import Section

LABEL_KEY = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?")
OBJECT_NAME = re.compile(
    r"(?!.{254})[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)
"""A DNS subdomain of at most 253 characters, as objects of most kinds are called."""

SHARED_MEMORY_PATH = "/dev/shm"
LAUNCHER_PATHS = (
    *("/kfp-launcher", "/gcs", "/s3", "/minio", "/.local", "/.cache", "/.config"),
    SHARED_MEMORY_PATH,
)
"""Where the launcher of KFP 2.3 and newer, or `shm_gib`, mounts its own volume."""


def _matches(pattern: re.Pattern[str], expected: str) -> pydantic.AfterValidator:
    """Return a validator of text that must fully match a pattern."""

    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(f"{text!r} is not {expected}")
        return text

    return pydantic.AfterValidator(check)


def _mount_path(text: str) -> str:
    path = text.rstrip("/")
    if not path.startswith("/") or ":" in path or ".." in path.split("/"):
        raise ValueError(f"{text!r} is not a folder of a container: use a path such as /mnt/data")
    for taken in LAUNCHER_PATHS:
        if path == taken or path.startswith(f"{taken}/"):
            raise ValueError(
                f"{text!r} is inside {taken}, which is a volume already: use another path, such as "
                "/mnt/data (for more room under /s3 or /gcs: scratch_volume; for shared memory: "
                "shm_gib)"
            )
    return path


LabelKey = Annotated[
    str,
    _matches(LABEL_KEY, "a Kubernetes key: use `name` or `domain/name`, 63 characters at most"),
]
LabelValue = Annotated[
    str,
    _matches(
        LABEL_VALUE,
        "a Kubernetes label value: use letters, digits, `-`, `_` and `.`, 63 characters at most",
    ),
]
ResourceName = Annotated[
    str,
    _matches(
        OBJECT_NAME,
        "the name of a Kubernetes object: use lower-case letters, digits, `-` and `.`",
    ),
]
# KFP also uses a claim's name as the name of the pod's volume: a DNS label, without dots.
ClaimName = Annotated[
    str,
    _matches(
        re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"),
        "a claim that KFP can mount: it names the pod's volume after the claim, so use lower-case "
        "letters, digits and `-`, 63 characters at most",
    ),
]
VariableName = Annotated[
    str,
    _matches(
        re.compile(r"[A-Za-z_][A-Za-z0-9_]*"),
        "a variable's name: use letters, digits and `_`, not a digit first",
    ),
]
FieldPath = Annotated[
    str,
    _matches(
        re.compile(
            r"metadata\.(name|namespace|uid|(labels|annotations)\['[^']+'\])"
            r"|spec\.(nodeName|serviceAccountName)|status\.(hostIPs?|podIPs?)"
        ),
        "a field of a pod that a variable can have: use metadata.name, metadata.namespace, "
        "metadata.uid, metadata.labels['KEY'], metadata.annotations['KEY'], spec.nodeName, "
        "spec.serviceAccountName, status.hostIP or status.podIP",
    ),
]


class Toleration(Section):
    """A taint of nodes that a pod accepts."""

    key: LabelKey | None = Field(
        default=None, description="Key of the taint; null with `operator: Exists`: every taint."
    )
    operator: Literal["Equal", "Exists"] = Field(
        default="Equal", description="Exists: whatever the taint's value is."
    )
    value: LabelValue | None = Field(
        default=None, description="Value of the taint, for `operator: Equal`."
    )
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Effect of the taint; null: every effect."
    )
    toleration_seconds: int | None = Field(
        default=None,
        ge=0,
        description="With `effect: NoExecute`: how long the pod stays on a node that gets the "
        "taint; null: without limit.",
    )

    @pydantic.model_validator(mode="after")
    def _fields_fit_together(self) -> Toleration:
        if self.key is None and self.operator == "Equal":
            raise ValueError("key: missing; name the taint, or use operator: Exists for every one")
        if self.operator == "Exists" and self.value is not None:
            raise ValueError(
                f"value={self.value}: `operator: Exists` compares no value; remove one of the two"
            )
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise ValueError(
                f"toleration_seconds={self.toleration_seconds}: only with effect: NoExecute"
            )
        return self


class Requirement(Section):
    """A condition on a label or a field of a node."""

    key: str = Field(min_length=1, description="Label of the node, or `metadata.name`.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = Field(
        description="How the label is compared with `values`."
    )
    values: tuple[str, ...] = Field(
        default=(),
        description="In, NotIn: one value or more. Gt, Lt: one integer. Others: none.",
    )

    @pydantic.model_validator(mode="after")
    def _values_fit_the_operator(self) -> Requirement:
        count, needs = len(self.values), self.operator
        if needs in ("Exists", "DoesNotExist") and count:
            raise ValueError(f"values: operator {needs} takes none; remove them")
        if needs in ("In", "NotIn") and not count:
            raise ValueError(f"values: operator {needs} needs at least one")
        if needs in ("Gt", "Lt") and not (count == 1 and self.values[0].lstrip("-").isdigit()):
            raise ValueError(f"values: operator {needs} needs one integer, in quotes")
        return self


class NodeAffinityTerm(Section):
    """Conditions that a node must all meet; with a weight, such nodes are only preferred."""

    match_expressions: tuple[Requirement, ...] = Field(
        examples=[[{"key": "disktype", "operator": "In", "values": ["ssd"]}]],
        default=(),
        description="Requirements on the node's labels.",
    )
    match_fields: tuple[Requirement, ...] = Field(
        examples=[[{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]],
        default=(),
        description="Requirements on the node's fields: `metadata.name`.",
    )
    weight: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="Prefer such nodes, with this weight; default: use no other nodes.",
    )

    @pydantic.model_validator(mode="after")
    def _is_not_empty(self) -> NodeAffinityTerm:
        if not (self.match_expressions or self.match_fields):
            raise ValueError("match_expressions: missing; name a label of nodes")
        return self


class Volume(Section):
    """A PersistentVolumeClaim of the run's namespace, mounted into pods."""

    claim: ClaimName = Field(description="Name of an existing PersistentVolumeClaim.")
    mount_path: Annotated[str, pydantic.AfterValidator(_mount_path)] = Field(
        examples=["/mnt/data"], description="Folder in the container."
    )
    sub_path: str | None = Field(
        default=None,
        min_length=1,
        description="Folder inside the volume; default: its root. Kubeflow Pipelines before "
        "2.16 ignores it and mounts the root.",
    )


class ScratchVolume(Section):
    """A volume for files that KFP's launcher downloads, deleted with the pod."""

    size_gib: float = Field(gt=0, description="Size in GiB.")
    storage_class: ResourceName | None = Field(
        default=None, description="StorageClass; null: the cluster's default."
    )


class PodSettings(Section):
    """Settings of pods: for all nodes in `cluster.kubeflow`, for one node in its `resources`."""

    node_selector: dict[LabelKey, LabelValue] | None = Field(
        examples=[{"disktype": "ssd"}],
        default=None,
        description="Labels that the machine must have. Kubeflow only.",
    )
    tolerations: tuple[Toleration, ...] | None = Field(
        default=None, description="Taints of machines that pods accept. Kubeflow only."
    )
    affinity: tuple[NodeAffinityTerm, ...] | None = Field(
        default=None,
        description="Machines that are required or preferred. Of several terms without a weight, "
        "a machine must meet one. Needs Kubeflow Pipelines 2.14 or newer. Kubeflow only.",
    )
    volumes: tuple[Volume, ...] | None = Field(
        default=None, description="PersistentVolumeClaims to mount. Kubeflow only."
    )
    scratch_volume: ScratchVolume | None = Field(
        default=None,
        description="A volume for the artifacts that the launcher downloads, in place of the "
        "machine's own disk. Kubeflow only.",
    )
    shm_gib: float | None = Field(
        default=None,
        gt=0,
        description="Size of /dev/shm in GiB, which counts as memory of the pod; default: 64 MiB, "
        "as the container runtime sets it. Kubeflow only.",
    )
    annotations: dict[LabelKey, str] | None = Field(
        examples=[{"sidecar.istio.io/inject": "false"}],
        default=None,
        description="Annotations of the pod. Kubeflow only.",
    )

    @pydantic.model_validator(mode="after")
    def _volumes_do_not_collide(self) -> PodSettings:
        for field in ("claim", "mount_path"):
            given = [getattr(volume, field) for volume in self.volumes or ()]
            if twice := next((each for each in given if given.count(each) > 1), None):
                raise ValueError(f"volumes: {field}={twice} is listed twice; remove one")
        return self


POD_FIELDS = tuple(PodSettings.model_fields)
"""Fields of `cluster.kubeflow` that a node's `resources` can override."""
