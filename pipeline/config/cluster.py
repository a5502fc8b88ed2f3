"""`cluster:` of the YAML: for each target the image, the place of artifacts, and node resources."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import pydantic
from pydantic import Field

from pipeline.common.json_types import JsonValue
from pipeline.config.kubernetes import (
    POD_FIELDS,
    FieldPath,
    PodSettings,
    ResourceName,
    VariableName,
)
from pipeline.config.section import Section
from pipeline.config.servers import KserveConfig, VertexServerConfig
from pipeline.config.vertex_settings import VertexSettings
from pipeline.engines.engine import BeamConfig, option_name

DEFAULT_NODE = "default"


class NodeResources(PodSettings):
    """Resources of a node's container; the target decides those that are not set."""

    cpu: float | None = Field(examples=[4], default=None, gt=0, description="CPU cores.")
    memory_gib: float | None = Field(
        examples=[16], default=None, gt=0, description="Memory in GiB."
    )
    cpu_request: float | None = Field(
        default=None,
        gt=0,
        description="CPU cores that the scheduler reserves; default: `cpu`. Kubeflow only.",
    )
    memory_request_gib: float | None = Field(
        default=None,
        gt=0,
        description="Memory that the scheduler reserves, in GiB; default: `memory_gib`. Kubeflow "
        "only.",
    )
    ephemeral_storage_gib: float | None = Field(
        default=None,
        gt=0,
        description="Disk of the machine that the scheduler reserves for the node, and the limit "
        "of what it may use, in GiB. It must hold the node's input artifacts, which are "
        "downloaded. With an `accelerator` use `scratch_volume` instead. Kubeflow only.",
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

    @pydantic.model_validator(mode="after")
    def _requests_are_within_limits(self) -> NodeResources:
        for field, request, limit in (
            ("cpu", "cpu_request", "cpu"),
            ("memory", "memory_request_gib", "memory_gib"),
            ("shared memory", "shm_gib", "memory_gib"),
        ):
            asked, most = getattr(self, request), getattr(self, limit)
            if asked is not None and most is not None and asked > most:
                raise ValueError(
                    f"{request}={asked:g} exceeds {limit}={most:g} ({field}); use {most:g} or less"
                )
        if self.ephemeral_storage_gib is not None and self.accelerator is not None:
            # KFP has one field for one extended resource of a container: the accelerator uses it.
            raise ValueError(
                f"ephemeral_storage_gib={self.ephemeral_storage_gib:g}: KFP cannot reserve disk "
                "for a node with an accelerator; use scratch_volume: {size_gib: "
                f"{self.ephemeral_storage_gib:g}}}"
            )
        return self

    @property
    def has_nvidia_gpu(self) -> bool:
        """Whether the accelerator is from NVIDIA: `nvidia.com/gpu`, `NVIDIA_L4`."""
        return (self.accelerator or "").lower().startswith("nvidia")


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
    resources: dict[str, NodeResources] = Field(
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


class KubeflowConfig(TargetConfig, PodSettings):
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
    field_env: dict[VariableName, FieldPath] = Field(
        examples=[{"POD_NAME": "metadata.name"}],
        default_factory=dict,
        description="Fields of the pod as environment variables of every node: "
        "`{POD_NAME: metadata.name}`.",
    )
    image_pull_secrets: tuple[ResourceName, ...] = Field(
        default=(), description="Kubernetes secrets with the registry's login."
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        default=None,
        description="When a machine pulls the image; default: as Kubernetes does, once per tag.",
    )

    @pydantic.model_validator(mode="after")
    def _a_variable_has_one_source(self) -> KubeflowConfig:
        secret = {name for keys in self.secrets.values() for name in keys.values()}
        for name in self.field_env:
            if name in self.environment or name in secret:
                other = "environment" if name in self.environment else "secrets"
                raise ValueError(f"field_env: {name} is also in {other}; remove it from one")
        return self

    def pod_settings(self, node: str) -> PodSettings:
        """Return a node's pod settings: the fields in its `resources`, or else the profile's."""
        own = self.of_node(node)
        chosen = {
            field: getattr(self, field) if (value := getattr(own, field)) is None else value
            for field in POD_FIELDS
        }
        return PodSettings.model_construct(**chosen)


class VertexConfig(TargetConfig, VertexSettings):
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
        "above 1, or if `spot`, `boot_disk_gib` or `persistent_resource` is set.",
    )

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
