"""The engines that `beam.engine` names, and Beam's engines that are not offered.

beam: {engine: in_memory}                                     # one process (the default)
beam: {engine: multi_processing, workers: 4}                  # processes on this machine
beam: {engine: portable}                                      # Beam's embedded job server
beam: {engine: flink, parallelism: 2, environment: external}  # `make flink`, or your cluster
beam: {engine: spark, job_endpoint: "spark-gateway:8099"}
beam: {engine: dataflow, project: p, region: r, temp_location: "gs://b/tmp", ...}
"""

from __future__ import annotations

import difflib
from typing import Annotated, get_args

import pydantic
from pydantic import Field

from pipeline.engines.dataflow import Dataflow
from pipeline.engines.engine import Engine
from pipeline.engines.flink import Flink
from pipeline.engines.in_memory import InMemory
from pipeline.engines.multi_processing import MultiProcessing
from pipeline.engines.portable import Portable
from pipeline.engines.spark import Spark

_Offered = InMemory | MultiProcessing | Portable | Flink | Spark | Dataflow

ENGINES: dict[str, type[Engine]] = {
    engine.model_fields["engine"].default: engine for engine in get_args(_Offered)
}
"""Name in the YAML -> model."""

NOT_OFFERED = {
    "dask": "Beam's DaskRunner gives silently wrong results with TensorFlow Transform",
    "direct": "Beam's DirectRunner first tries to download another runner (Prism); "
    "in_memory names FnApiRunner, which DirectRunner stands for",
    "prism": "Beam's Prism runner is a program that Beam downloads when it first runs",
}
"""Engines that Beam has and this project refuses, and why."""


def _select_engine(value: object) -> object:
    """Insert the default engine; raise with the reason if the engine is not offered."""
    if not isinstance(value, dict):
        return value
    engine = value.get("engine", "in_memory")
    if isinstance(engine, str) and engine in ENGINES:
        return {**value, "engine": engine}
    name = str(engine).lower().removesuffix("runner")
    near = difflib.get_close_matches(name, ENGINES, n=1)
    if name in NOT_OFFERED:
        problem = f"not offered: {NOT_OFFERED[name]}."
    else:
        problem = f"unknown. Did you mean {near[0]!r}?" if near else "unknown."
    raise ValueError(f"engine={engine!r} is {problem} Use one of {', '.join(ENGINES)}.")


BeamConfig = Annotated[
    _Offered,
    Field(discriminator="engine", examples=[{"engine": "multi_processing", "workers": 4}]),
    pydantic.BeforeValidator(_select_engine),
]
"""How Beam runs the data-parallel nodes (ExampleGen, statistics, Transform, Evaluator)."""
