"""`cluster.kubeflow.server` and `cluster.vertex.server`: the resources of a served model."""

from __future__ import annotations

import pydantic
from pydantic import Field

from pipeline.config.section import Section


class KserveConfig(Section):
    """A server with KServe's TensorFlow runtime."""

    min_replicas: int = Field(default=1, ge=0, description="Minimum number of servers.")
    max_replicas: int = Field(
        default=1, ge=1, description="Maximum number of servers; they are added as load grows."
    )
    accelerator_count: int = Field(
        default=1, ge=1, description="Accelerators per server, if `accelerator` is set."
    )
    service_account: str | None = Field(
        default=None,
        description="Account that reads the model; default: `service_account` of the target.",
    )

    cpu: float = Field(default=1, gt=0, description="CPU cores of a server.")
    memory_gib: float = Field(default=2, gt=0, description="Memory of a server in GiB.")
    accelerator: str | None = Field(
        default=None,
        description="Type of accelerator as Kubernetes names it: `nvidia.com/gpu`.",
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
