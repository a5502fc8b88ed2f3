"""The base of every section of the YAML."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A section of the YAML: frozen, and without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")
