"""`beam: {engine: spark, job_endpoint: "spark-gateway:8099"}`: your Spark cluster."""

from __future__ import annotations

from typing import Literal

from pipeline.engines.job_server import JobServerEngine


class Spark(JobServerEngine):
    """Apache Spark behind Beam's Spark job server, which knows the Spark master."""

    engine: Literal["spark"] = "spark"
