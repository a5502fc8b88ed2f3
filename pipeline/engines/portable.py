"""`beam: {engine: portable}`: any Beam job server, or the one embedded in Beam's Python package."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic
from pydantic import Field

from pipeline.engines.engine import address
from pipeline.engines.job_server import EMBED, JobServerEngine


def _embed_or_address(text: str) -> str:
    return text if text == EMBED else address(text)


class Portable(JobServerEngine):
    """Any Beam job server; `embed` is the one inside Beam's Python package."""

    engine: Literal["portable"] = "portable"
    job_endpoint: Annotated[str, pydantic.AfterValidator(_embed_or_address)] = Field(
        default=EMBED,
        description="`host:port` of a Beam job server, or `embed`: Beam's own, in this process.",
    )
