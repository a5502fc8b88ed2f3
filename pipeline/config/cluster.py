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

    # The largest machines of AWS and Google Cloud have 384 cores, and none more than 32 TiB.
    cpu: float | None = Field(examples=[4], default=None, gt=0, le=384, description="CPU cores.")
    memory_gib: float | None = Field(
        examples=[16], default=None, gt=0, le=32 * 1024, description="Memory in GiB."
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
        le=2**31 // 60,  # a pod's activeDeadlineSeconds has 31 bits
        description="Time limit of each attempt of the node, in minutes; default: none. On Vertex "
        "only for a Trainer that runs as a CustomJob.",
    )
    pod: _Pod = Field(
        examples=[{"nodeSelector": {"labels": {"pool": "gpu"}}}],
        default_factory=dict,
        description="Kubeflow: fields that replace those of `cluster.kubeflow.pod` for this node.",
    )

    @property
    def has_nvidia_gpu(self) -> bool:
        """Whether the accelerator is from NVIDIA: `nvidia.com/gpu`, `NVIDIA_L4`."""
        return (self.accelerator or "").lower().startswith("nvidia")


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
        description="Number of retries of a failed node.",
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

    server: JsonObject = Field(
        examples=[{"minReplicas": 0, "model": {"resources": {"limits": {"cpu": "2"}}}}],
        default_factory=dict,
        description="Fields of the `predictor` that `serve-manifest` writes, in KServe's form; see "
        "docs/serving.md.",
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
    pod: _Pod = Field(
        examples=[{"nodeSelector": {"labels": {"pool": "cpu"}}}],
        default_factory=dict,
        description="Scheduling, mounts, pull secrets and annotations of every pod, as fields of "
        f"KFP's KubernetesExecutorConfig: {', '.join(_POD_FIELDS)}. See docs/pods.md.",
    )

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
    machine_type: str = Field(
        default="n1-standard-8",
        description="Machine type of each worker of the Trainer. Used if `training.workers` is "
        "above 1, or if `spot` is set.",
    )
    spot: bool = Field(
        default=False,
        description="Train on Spot machines, which cost less and may be preempted; also set "
        "`retries`.",
    )

    @pydantic.field_validator("resources")
    @classmethod
    def _has_no_pods(cls, resources: Mapping[str, NodeResources]) -> Mapping[str, NodeResources]:
        if names := [name for name, node in resources.items() if node.pod]:
            raise ValueError(f"{names[0]}.pod: Vertex has no pods; remove it")
        return resources

    @pydantic.model_validator(mode="before")
    @classmethod
    def _dataflow_is_of_this_profile(cls, value: JsonValue) -> JsonValue:
        """Fill in Dataflow's options: the profile's image, project and account."""
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

    kubeflow: KubeflowConfig | None = Field(
        default=None, description="Kubeflow Pipelines 2.5 and newer."
    )
    vertex: VertexConfig | None = Field(default=None, description="Vertex AI Pipelines.")


Cluster = Annotated[ClusterConfig, pydantic.BeforeValidator(_not_empty)]
