"""Machines and encryption of Vertex: fields of `cluster.vertex`."""

from __future__ import annotations

import re

import pydantic
from pydantic import Field

from pipeline.config.section import Section

_PERSISTENT_RESOURCE = re.compile(r"[a-z]([a-z0-9-]{0,126}[a-z0-9])?")
_KEY = re.compile(r"projects/[^/]+/locations/([^/]+)/keyRings/[^/]+/cryptoKeys/[^/]+")


class VertexSettings(Section):
    """Machines and encryption of a job on Vertex."""

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
    restart_on_worker_restart: bool = Field(
        default=False,
        description="Restart all workers of the Trainer if one restarts; has an effect if "
        "`training.workers` is above 1.",
    )
    encryption_key: str | None = Field(
        default=None,
        description="Cloud KMS key that encrypts the run and its resources: "
        "`projects/P/locations/REGION/keyRings/R/cryptoKeys/K`.",
    )
    persistent_resource: str | None = Field(
        default=None,
        description="Id of a Vertex persistent resource on whose machines the Trainer runs.",
    )

    @property
    def needs_custom_job(self) -> bool:
        """Whether a Trainer on one machine has settings that only a CustomJob has."""
        return self.spot or self.boot_disk_gib is not None or self.persistent_resource is not None

    @property
    def key_region(self) -> str | None:
        """The region of `encryption_key`."""
        found = _KEY.fullmatch(self.encryption_key or "")
        return found[1] if found else None

    @pydantic.field_validator("encryption_key")
    @classmethod
    def _is_a_key(cls, key: str | None) -> str | None:
        if key is not None and not _KEY.fullmatch(key):
            raise ValueError(
                "not a Cloud KMS key; use projects/P/locations/REGION/keyRings/R/cryptoKeys/K"
            )
        return key

    @pydantic.field_validator("persistent_resource")
    @classmethod
    def _is_an_id(cls, name: str | None) -> str | None:
        if name is not None and not _PERSISTENT_RESOURCE.fullmatch(name):
            raise ValueError(
                "not the id of a persistent resource; use the last part of its name: lower-case "
                "letters, digits and -, a letter first"
            )
        return name

    @pydantic.model_validator(mode="after")
    def _existing_machines_stay_as_they_are(self) -> VertexSettings:
        if self.persistent_resource is None:
            return self
        for field in ("spot", "boot_disk_gib"):
            if value := getattr(self, field):
                raise ValueError(
                    f"{field}={value} has no effect on the existing machines of "
                    f"persistent_resource={self.persistent_resource}; set it where the persistent "
                    "resource is created"
                )
        return self
