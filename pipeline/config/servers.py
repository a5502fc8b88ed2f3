"""`cluster.kubeflow.server` and `cluster.vertex.server`: the resources of a served model."""

from __future__ import annotations

from typing import Any

import pydantic
from pydantic import BaseModel, ConfigDict, Field


class ServerConfig(BaseModel):
    """What the servers of both targets have."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_replicas: int = Field(default=1, ge=0, description="Servers that always run.")
    max_replicas: int = Field(default=1, ge=1, description="Servers at most, as load grows.")
    accelerator_count: int = Field(default=1, ge=1, description="How many, with `accelerator`.")
    service_account: str | None = Field(
        default=None,
        description="Account that reads the model; null: the target's own `service_account`.",
    )

    @pydantic.model_validator(mode="after")
    def _replicas_are_a_range(self) -> Any:
        if self.min_replicas > self.max_replicas:
            raise ValueError(
                f"min_replicas={self.min_replicas} is more than max_replicas={self.max_replicas}; "
                "raise max_replicas"
            )
        return self


class KserveConfig(ServerConfig):
    """KServe's TensorFlow runtime."""

    cpu: float = Field(default=1, gt=0, description="Cores of a server.")
    memory_gib: float = Field(default=2, gt=0, description="Memory of a server in GiB.")
    accelerator: str | None = Field(
        default=None, description="Kind of device as Kubernetes calls it: `nvidia.com/gpu`."
    )
    version: str | None = Field(
        default=None,
        pattern=r"^[\w][\w.-]{0,127}$",
        description="Tag of the runtime's image `tensorflow/serving`, such as 2.16.1; null: that "
        "of the TensorFlow which wrote the model.",
    )


class VertexServerConfig(ServerConfig):
    """A Vertex endpoint."""

    min_replicas: int = Field(default=1, ge=1, description="Servers that always run.")
    machine_type: str = Field(default="n1-standard-2", description="Machine of a server.")
    accelerator: str | None = Field(
        default=None, description="Kind of device as Vertex calls it: `NVIDIA_TESLA_T4`."
    )
    image: str | None = Field(
        default=None,
        description="Google's prebuilt TensorFlow container, or an image of `tensorflow/serving` "
        "in your Artifact Registry; null: the prebuilt one of the model's TensorFlow, if any.",
    )
