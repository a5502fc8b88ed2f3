"""Vertex AI Pipelines: a PipelineJob as JSON; resolvers and ExampleGen's driver are kept."""

from __future__ import annotations

import json
from typing import Any

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject
from pipeline.config.cluster import VertexConfig
from pipeline.config.config import PipelineConfig
from pipeline.graph.node_names import NodeName
from pipeline.targets.long_values import find_oversized
from pipeline.targets.run_parameters import declare_parameters
from pipeline.targets.spec import drop_driver_of_windows, executors, job_of, tasks
from trainer_module import TrainerConfig


def is_custom_job(training: TrainerConfig, target: VertexConfig) -> bool:
    """Return whether the Trainer is a CustomJob: several workers, or settings that only it has."""
    return (training.workers or 1) > 1 or target.spot


def compiled(pipeline: Any, target: VertexConfig, config: PipelineConfig) -> str:
    """Return the JSON of a pipeline of `create_pipeline`; equal configurations give equal bytes.

    A ConfigError: it is too large to start.
    """
    job = job_of(pipeline, target)
    spec = job["pipelineSpec"]
    declare_parameters(spec, config, target)
    spec["defaultPipelineRoot"] = target.pipeline_root
    job["runtimeConfig"]["gcsOutputDirectory"] = target.pipeline_root
    job["labels"] = {**job.get("labels", {}), **target.labels}
    if target.service_account:
        job["serviceAccount"] = target.service_account
    if is_custom_job(config.training, target):
        label = spec["components"][NodeName.TRAINER]["executorLabel"]
        pools = worker_pools(config.training)
        executors(spec)[label] = _custom_job(executors(spec)[label], target, pools)
    drop_driver_of_windows(spec)
    for task in tasks(spec).values():
        task.setdefault("cachingOptions", {})
    if found := find_oversized(spec, "vertex"):
        raise ConfigError("\n".join(found))
    return json.dumps(job, indent=1, sort_keys=True) + "\n"


def worker_pools(training: TrainerConfig) -> tuple[int, ...]:
    """Return the number of machines in each pool: the chief, other workers, parameter servers.

    With parameter servers the chief does not train, so the other workers are all workers.
    """
    workers = training.workers or 1
    if workers == 1:
        return (1,)
    return (1, workers, 1) if training.strategy == "parameter_server" else (1, workers - 1)


def _custom_job(executor: JsonObject, target: VertexConfig, pools: tuple[int, ...]) -> JsonObject:
    """Return a CustomJob with a pool of machines for each role; the platform sets TF_CONFIG."""
    container = executor["container"]
    node = target.of_node(NodeName.TRAINER)
    machine: JsonObject = {"machineType": target.machine_type}
    if node.accelerator:
        machine["acceleratorType"] = node.accelerator
        machine["acceleratorCount"] = node.accelerator_count
    pool: JsonObject = {
        "machineSpec": machine,
        "containerSpec": {
            "imageUri": container["image"],
            "command": container["command"],
            "args": container["args"],
        },
    }
    job: JsonObject = {"workerPoolSpecs": [{**pool, "replicaCount": str(count)} for count in pools]}
    if node.timeout_minutes:
        job["scheduling"] = {"timeout": f"{max(1, round(60 * node.timeout_minutes))}s"}
    if target.spot:
        job.setdefault("scheduling", {})["strategy"] = "SPOT"
    if target.service_account:
        job["serviceAccount"] = target.service_account
    return {"customJob": {"customJob": {"jobSpec": job}}}
