"""`cluster:` of the YAML: for each target the image, the place of artifacts, and node resources."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Annotated, ClassVar

import pydantic
from pydantic import Field

from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.config.section import Section
from pipeline.engines.engine import BeamConfig, option_name
from shared_core.nearest import nearest

DEFAULT_NODE = "default"

LABEL_KEY = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?")
OBJECT_NAME = re.compile(
    r"(?!.{254})[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)
"""A DNS subdomain of at most 253 characters, as objects of most kinds are called."""

_KMS_KEY = r"^projects/[^/]+/locations/([^/]+)/keyRings/[^/]+/cryptoKeys/[^/]+$"

_POD_FIELDS = {
    "nodeSelector": "{labels}",
    "tolerations": "[key operator value effect tolerationSeconds]",
    "nodeAffinity": "[matchExpressions matchFields weight]",
    "podMetadata": "{labels annotations}",
    "imagePullSecret": "[secretName!]",
    "imagePullPolicy": "",
    "fieldPathAsEnv": "[name! fieldPath!]",
    "configMapAsEnv": "[configMapName! keyToEnv! optional]",
    "pvcMount": "[constant! mountPath! subPath]",
    "emptyDirMounts": "[volumeName! mountPath! medium sizeLimit]",
    "genericEphemeralVolume": (
        "[volumeName! mountPath! size! accessModes! storageClassName defaultStorageClass]"
    ),
}
"""Fields of KFP's KubernetesExecutorConfig -> their keys or those of each item; `!`: required."""


def _checked_pod(pod: JsonObject) -> JsonObject:
    """Check fields and keys; Kubernetes checks their values."""
    for field, value in pod.items():
        if field not in _POD_FIELDS:
            raise ValueError(f"{field} is unknown; {nearest(field, _POD_FIELDS)}")
        keys = _POD_FIELDS[field].strip("[]{}").split()
        is_list = _POD_FIELDS[field].startswith("[")
        for item in (value if isinstance(value, list) else [None]) if is_list else [value]:
            if keys and not isinstance(item, dict):
                raise ValueError(
                    f"{field} is {value!r}; use a {'list of mappings' if is_list else 'mapping'} "
                    f"with {', '.join(keys).replace('!', '')}"
                )
            known = [key.rstrip("!") for key in keys]
            unknown = [key for key in item if key not in known] if isinstance(item, dict) else []
            if keys and unknown:
                raise ValueError(f"{field}: {unknown[0]} is unknown; {nearest(unknown[0], known)}")
            if lacking := [k[:-1] for k in keys if k.endswith("!") and k[:-1] not in (item or {})]:
                raise ValueError(f"{field}: {item} lacks {lacking[0]}; add it")
    return pod


_Pod = Annotated[JsonObject, pydantic.AfterValidator(_checked_pod)]


class NodeResources(Section):
    """Resources of a node's container; the target decides those that are not set."""

    cpu: float | None = Field(examples=[4], default=None, gt=0, description="CPU cores.")
    memory_gib: float | None = Field(
        examples=[16], default=None, gt=0, description="Memory in GiB."
    )
    accelerator: str | None = Field(
        examples=["nvidia.com/gpu"],
        default=None,
        description="Type of accelerator as the target names it: `nvidia.com/gpu` on Kubeflow, "
        "`NVIDIA_TESLA_T4` on Vertex.",
    )
    accelerator_count: int = Field(
        default=1, ge=1, description="Number of accelerators, if `accelerator` is set."
    )
    timeout_minutes: float | None = Field(
        default=None,
        gt=0,
        description="Time limit of each attempt of the node, in minutes; default: none. On Vertex "
        "only for a Trainer that runs as a CustomJob.",
    )

    @property
    def has_nvidia_gpu(self) -> bool:
        """Whether the accelerator is from NVIDIA: `nvidia.com/gpu`, `NVIDIA_L4`."""
        return (self.accelerator or "").lower().startswith("nvidia")


class KubeflowResources(NodeResources):
    """Resources of a node on Kubeflow."""

    ephemeral_storage_gib: float | None = Field(
        default=None,
        gt=0,
        description="Disk of the machine that the scheduler reserves for the node, and the limit "
        "of what it may use, in GiB. It must hold the node's input artifacts, which are "
        "downloaded. With an `accelerator` use `pod.genericEphemeralVolume` instead.",
    )
    pod: _Pod = Field(
        examples=[{"nodeSelector": {"labels": {"pool": "gpu"}}}],
        default_factory=dict,
        description="Fields that replace those of `cluster.kubeflow.pod` for this node.",
    )

    @pydantic.model_validator(mode="after")
    def _disk_can_be_reserved(self) -> KubeflowResources:
        if self.ephemeral_storage_gib is not None and self.accelerator is not None:
            # KFP has one field for one extended resource of a container: the accelerator uses it.
            raise ValueError(
                f"ephemeral_storage_gib={self.ephemeral_storage_gib:g}: KFP cannot reserve disk "
                "for a node with an accelerator; use pod.genericEphemeralVolume (docs/cluster.md)"
            )
        return self


class KserveConfig(Section):
    """A server with KServe's TensorFlow runtime."""

    min_replicas: int = Field(default=1, ge=0, description="Minimum number of servers.")
    max_replicas: int = Field(
        default=1, ge=1, description="Maximum number of servers; they are added as load grows."
    )
    cpu: float = Field(default=1, gt=0, description="CPU cores of a server.")
    memory_gib: float = Field(default=2, gt=0, description="Memory of a server in GiB.")
    accelerator: str | None = Field(
        default=None,
        description="Type of accelerator as Kubernetes names it: `nvidia.com/gpu`.",
    )
    accelerator_count: int = Field(
        default=1, ge=1, description="Accelerators per server, if `accelerator` is set."
    )
    service_account: str | None = Field(
        default=None,
        description="Account that reads the model; default: `service_account` of the target.",
    )
    version: str | None = Field(
        default=None,
        pattern=r"^[\w][\w.-]{0,127}$",
        description="Tag of the image `tensorflow/serving`, such as 2.16.1; default: the release "
        "for the TensorFlow version that wrote the model.",
    )

    @pydantic.model_validator(mode="after")
    def _replicas_are_a_range(self) -> KserveConfig:
        if self.min_replicas > self.max_replicas:
            raise ValueError(
                f"min_replicas={self.min_replicas} is more than max_replicas={self.max_replicas}; "
                "raise max_replicas"
            )
        return self


class VertexServerConfig(Section):
    """A server on a Vertex endpoint."""

    image: str | None = Field(
        default=None,
        description="A copy of `tensorflow/serving` in your Artifact Registry.",
    )


class TargetConfig(Section):
    """Settings that both targets have."""

    section: ClassVar[str]  # name in the YAML

    image: str = Field(
        examples=["registry/name:1.0"],
        description="Container image with this package and yours, with a tag or a digest: "
        "`registry/name:1.0`.",
    )
    pipeline_root: str = Field(
        examples=["gs://bucket/folder"],
        description="Remote folder for all artifacts, for records of blessed models and, unless "
        "`serving.push_folder` is set, for pushed models.",
    )
    data_path: str | None = Field(
        examples=["gs://bucket/data/rows-*.csv"],
        default=None,
        description="Replaces `data.path` on the cluster: files that the cluster can read.",
    )
    data_gib: float | None = Field(
        default=None,
        gt=0,
        description="Size of the data on the cluster, in GiB. `compile` uses it to check that "
        "data fits into the memory of `resources` with Beam's local runners. Default: the size "
        "of `data.path`, if it is on this machine.",
    )
    eval_path: str | None = Field(
        examples=["gs://bucket/data/eval-*.csv"],
        default=None,
        description="Replaces `data.eval_path` on the cluster.",
    )
    schema_path: str | None = Field(
        examples=["gs://bucket/schema.pbtxt"],
        default=None,
        description="Replaces `schema.path` on the cluster.",
    )
    beam: BeamConfig | None = Field(
        default=None, description="Replaces `beam` on the cluster; default: as in a local run."
    )
    resources: Mapping[str, NodeResources] = Field(
        examples=[{"default": {"cpu": 4, "memory_gib": 16}}],
        default_factory=dict,
        description="Node (Transform, Trainer, ...) -> its resources; `default` is for all others.",
    )
    labels: dict[str, str] = Field(
        examples=[{"team": "research"}],
        default_factory=dict,
        description="Kubernetes labels of pods, or labels of the Vertex job.",
    )
    service_account: str | None = Field(
        default=None, description="Service account of the run; default: that of the target."
    )
    parameters: tuple[str, ...] = Field(
        examples=[["training.epochs", "data.path"]],
        default=(),
        description="Fields of the YAML that become parameters of the compiled pipeline "
        "(`[training.epochs, data.path]`). Each run may set them; their defaults are the values "
        "of the YAML.",
    )
    retries: int = Field(
        examples=[3],
        default=0,
        ge=0,
        description="Number of retries of a failed node. Needs Kubeflow Pipelines 2.4.1 or newer.",
    )
    cache: bool = Field(
        default=True,
        description="Reuse outputs of an earlier run if a node's inputs and settings are the same.",
    )

    def of_node(self, name: str) -> NodeResources:
        """Return the resources of a node."""
        return self.resources.get(name) or self.resources.get(DEFAULT_NODE) or NodeResources()

    @property
    def has_nvidia_gpu(self) -> bool:
        """Whether any node requests an NVIDIA accelerator."""
        return any(node.has_nvidia_gpu for node in self.resources.values())


class KubeflowConfig(TargetConfig):
    """Settings for Kubeflow Pipelines 2.5 and newer."""

    section = "cluster.kubeflow"

    server: KserveConfig = Field(
        default_factory=KserveConfig,
        description="The KServe server that `serve-manifest` describes; see docs/serving.md.",
    )
    baseline_model: str | None = Field(
        default=None,
        description="Folder of the model that a new model is compared with; default: the latest "
        "blessed model in `pipeline_root`.",
    )
    environment: dict[str, str] = Field(
        examples=[{"AWS_ENDPOINT_URL": "http://minio:9000"}],
        default_factory=dict,
        description="Environment variables of every node, such as AWS_ENDPOINT_URL for s3:// of "
        "MinIO.",
    )
    secrets: dict[str, dict[str, str]] = Field(
        examples=[{"mlpipeline-minio-artifact": {"accesskey": "AWS_ACCESS_KEY_ID"}}],
        default_factory=dict,
        description="Kubernetes secrets as environment variables of every node, by the secret's "
        "name: `{mlpipeline-minio-artifact: {accesskey: AWS_ACCESS_KEY_ID, ...}}`.",
    )
    resources: Mapping[str, KubeflowResources] = Field(
        examples=[{"default": {"cpu": 4, "memory_gib": 16}}],
        default_factory=dict,
        description="Node (Transform, Trainer, ...) -> its resources; `default` is for all others.",
    )
    pod: _Pod = Field(
        examples=[{"nodeSelector": {"labels": {"pool": "cpu"}}}],
        default_factory=dict,
        description="Scheduling, mounts, pull secrets and annotations of every pod, as fields of "
        f"KFP's KubernetesExecutorConfig: {', '.join(_POD_FIELDS)}. See docs/cluster.md.",
    )

    def of_node(self, name: str) -> KubeflowResources:
        """Return the resources of a node."""
        return self.resources.get(name) or self.resources.get(DEFAULT_NODE) or KubeflowResources()

    def pod_of(self, node: str) -> JsonObject:
        """Return a copy of a node's pod settings: fields in its `resources`, or the profile's."""
        return copy.deepcopy({**self.pod, **self.of_node(node).pod})


class VertexConfig(TargetConfig):
    """Settings for Vertex AI Pipelines."""

    section = "cluster.vertex"

    server: VertexServerConfig = Field(
        default_factory=VertexServerConfig,
        description="The endpoint that `serve-manifest` describes; see docs/serving.md.",
    )
    project: str | None = Field(
        default=None,
        description="Google Cloud project for `submit`; default: that of your gcloud settings.",
    )
    region: str | None = Field(
        examples=["europe-west4"],
        default=None,
        description="Region for `submit`, such as europe-west4; default: $GOOGLE_CLOUD_REGION.",
    )
    network: str | None = Field(
        default=None,
        description="VPC network that the job is peered with: "
        "`projects/12345/global/networks/name`.",
    )
    machine_type: str = Field(
        default="n1-standard-8",
        description="Machine type of each worker of the Trainer. Used if `training.workers` is "
        "above 1, or if `spot` or `boot_disk_gib` is set.",
    )
    spot: bool = Field(
        default=False,
        description="Train on Spot machines, which cost less and may be preempted; also set "
        "`retries`.",
    )
    boot_disk_gib: int | None = Field(
        default=None,
        ge=100,
        le=64000,
        description="Boot disk of each machine of the Trainer, in GiB; default: 100.",
    )
    encryption_key: str | None = Field(
        examples=["projects/P/locations/REGION/keyRings/R/cryptoKeys/K"],
        default=None,
        pattern=_KMS_KEY,
        description="Cloud KMS key that encrypts the run and its resources: "
        "`projects/P/locations/REGION/keyRings/R/cryptoKeys/K`.",
    )

    @property
    def needs_custom_job(self) -> bool:
        """Whether a Trainer on one machine has settings that only a CustomJob has."""
        return self.spot or self.boot_disk_gib is not None

    @property
    def key_region(self) -> str | None:
        """The region of `encryption_key`."""
        key = re.match(_KMS_KEY, self.encryption_key or "")
        return key[1] if key else None

    @pydantic.model_validator(mode="before")
    @classmethod
    def _dataflow_is_of_this_profile(cls, value: JsonValue) -> JsonValue:
        """Fill in Dataflow's options: the profile's image, project, account and key."""
        beam = value.get("beam") if isinstance(value, dict) else None
        if not isinstance(beam, dict) or beam.get("engine") != "dataflow":
            return value
        options = beam.get("options") or []
        if not isinstance(options, list):
            return value  # the model reports it
        root = str(value.get("pipeline_root", "")).rstrip("/")
        own = {
            "project": value.get("project"),
            "region": value.get("region"),
            "temp_location": f"{root}/beam-temp" if root else None,
            "sdk_container_image": value.get("image"),
            "service_account_email": value.get("service_account"),
            "dataflow_kms_key": value.get("encryption_key"),
        }
        names = {option_name(str(argument)) for argument in options}
        more = [f"--{name}={text}" for name, text in own.items() if text and name not in names]
        return {**value, "beam": {**beam, "options": [*more, *options]}}


def _not_empty(value: object) -> object:
    if value == {}:
        raise ValueError("name a target: kubeflow or vertex, with its image and pipeline_root")
    return value


class ClusterConfig(Section):
    """The settings of each target."""

    kubeflow: KubeflowConfig | None = None
    vertex: VertexConfig | None = None


Cluster = Annotated[ClusterConfig, pydantic.BeforeValidator(_not_empty)]
