"""`beam: {engine: multi_processing, workers: 4}`: processes on this machine."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pipeline.engines.engine import WORKERS_HAVE_TFX, Engine, Option


class MultiProcessing(Engine):
    """Several processes on this machine."""

    engine: Literal["multi_processing"] = "multi_processing"
    workers: int = Field(default=1, ge=1, description="Number of worker processes.")

    def options(self) -> tuple[Option, ...]:
        """Return the options of Beam's FnApiRunner with processes as workers."""
        return (
            Option("runner", "FnApiRunner", "Beam's own runner, with worker processes"),
            Option("direct_running_mode", "multi_processing", "a process for each worker"),
            Option("direct_num_workers", str(self.workers), "beam.workers"),
            WORKERS_HAVE_TFX,
        )
