"""`beam: {engine: in_memory}`: one process, the default."""

from __future__ import annotations

from typing import Literal

import pydantic
from pydantic import Field

from pipeline.engines.engine import WORKERS_HAVE_TFX, Engine, Option


class InMemory(Engine):
    """One process on this machine."""

    engine: Literal["in_memory"] = "in_memory"
    workers: int = Field(default=1, ge=1, description="1; more need engine: multi_processing.")

    @pydantic.model_validator(mode="after")
    def _has_one_worker(self) -> InMemory:
        if self.workers > 1:
            raise ValueError(
                f"workers={self.workers} needs engine: multi_processing "
                "(engine: in_memory has one worker)"
            )
        return self

    def options(self) -> tuple[Option, ...]:
        """Return the options of Beam's FnApiRunner."""
        return (
            Option("runner", "FnApiRunner", "Beam's own runner, in this process"),
            WORKERS_HAVE_TFX,
        )
