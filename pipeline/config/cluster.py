"""`cluster:` of the YAML: for each target the image, the place of artifacts, and what nodes get."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from pipeline.engines.table import BeamConfig

DEFAULT_NODE = "default"


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NodeResources(_Section):
    """What the container of a node gets; what is not said is left to the target."""

    cpu: float | None = Field(default=None, gt=0, description="Cores.")
    memory_gib: float | None = Field(default=None, gt=0, description="Memory in GiB.")
    accelerator: str | None = Field(
        default=None,
        description="Kind as the target calls it: `nvidia.com/gpu` on Kubeflow, "
        "`NVIDIA_TESLA_T4` on Vertex.",
    )
    accelerator_count: int = Field(default=1, ge=1, description="How many, with `accelerator`.")
    timeout_minutes: float | None = Field(
        default=None,
        gt=0,
        description="After which each attempt of the node is ended, in minutes; null: any time. On "
        "Vertex for a Trainer on several workers alone.",
    )


class TargetConfig(_Section):
    """What both targets have."""

    section: ClassVar[str]  # as it is called in the YAML

    image: str = Field(
        description="Container image with this package and yours, with a tag or a digest: "
        "`registry/name:1.0`."
    )
    pipeline_root: str = Field(
        description="Remote folder of all artifacts, of blessed models and, without "
        "`serving.push_folder`, of pushed ones."
    )
    data_path: str | None = Field(
        default=None,
        description="In place of `data.path` there: a place that the cluster reads.",
    )
    data_gib: float | None = Field(
        default=None,
        gt=0,
        description="Size of the data there, in GiB: what Beam's own runner holds in memory is "
        "compared with `resources`. null: that of `data.path` on this machine, where it is here.",
    )
    eval_path: str | None = Field(default=None, description="In place of `data.eval_path` there.")
    schema_path: str | None = Field(default=None, description="In place of `schema.path` there.")
    beam: BeamConfig | None = Field(
        default=None, description="In place of `beam` there; null: as in a local run."
    )
    resources: dict[str, NodeResources] = Field(
        default_factory=dict,
        description="By the node's name (Transform, Trainer, ...); `default` is for all others.",
    )
    labels: dict[str, str] = Field(
        default_factory=dict, description="Kubernetes labels of pods, or labels of the Vertex job."
    )
    service_account: str | None = Field(
        default=None, description="Account that the run has; null: the target's default."
    )
    retries: int = Field(default=0, ge=0, description="How often a node that failed runs again.")
    cache: bool = Field(
        default=True, description="Reuse what a node wrote from the same inputs and settings."
    )

    def of_node(self, name: str) -> NodeResources:
        """What a node gets."""
        return self.resources.get(name) or self.resources.get(DEFAULT_NODE) or NodeResources()


class KubeflowConfig(TargetConfig):
    """Kubeflow Pipelines, open source, from 2.0 on."""

    section = "cluster.kubeflow"

    baseline_model: str | None = Field(
        default=None,
        description="Folder of the model that a new one is compared with; null: the latest blessed "
        "one in `pipeline_root`.",
    )
    environment: dict[str, str] = Field(
        default_factory=dict,
        description="Environment variables of every node, such as AWS_ENDPOINT_URL for s3:// of "
        "MinIO.",
    )
    secrets: dict[str, dict[str, str]] = Field(
        default_factory=dict,
        description="Kubernetes secrets as environment variables of every node, by the secret's "
        "name: `{mlpipeline-minio-artifact: {accesskey: AWS_ACCESS_KEY_ID, ...}}`.",
    )


class VertexConfig(TargetConfig):
    """Vertex AI Pipelines."""

    section = "cluster.vertex"

    project: str | None = Field(
        default=None,
        description="Google Cloud project, for `submit`; null: that of your Google Cloud settings.",
    )
    region: str | None = Field(
        default=None,
        description="Such as europe-west4, for `submit`; null: GOOGLE_CLOUD_REGION.",
    )
    network: str | None = Field(
        default=None,
        description="VPC network that the job is peered with: "
        "`projects/12345/global/networks/name`.",
    )
    machine_type: str = Field(
        default="n1-standard-8",
        description="Machine of each Trainer's worker, where `training.workers` is above 1.",
    )

    @pydantic.model_validator(mode="before")
    @classmethod
    def _dataflow_is_of_this_profile(cls, value: Any) -> Any:
        """Dataflow's workers run the same image, in the same project, as the same account."""
        beam = value.get("beam") if isinstance(value, dict) else None
        if not isinstance(beam, dict) or beam.get("engine") != "dataflow":
            return value
        root = str(value.get("pipeline_root", "")).rstrip("/")
        own = {
            "project": value.get("project"),
            "region": value.get("region"),
            "temp_location": f"{root}/beam-temp" if root else None,
            "sdk_container_image": value.get("image"),
            "service_account": value.get("service_account"),
        }
        given = {name: each for name, each in own.items() if each is not None}
        return {**value, "beam": {**given, **beam}}


def _not_empty(value: Any) -> Any:
    if value == {}:
        raise ValueError("name a target: kubeflow or vertex, with its image and pipeline_root")
    return value


class ClusterConfig(_Section):
    """The profile of each target that the pipeline is deployed to."""

    kubeflow: KubeflowConfig | None = None
    vertex: VertexConfig | None = None


Cluster = Annotated[ClusterConfig, pydantic.BeforeValidator(_not_empty)]
