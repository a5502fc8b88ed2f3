"""Vertex AI Pipelines: a PipelineJob as JSON; resolvers and ExampleGen's driver are kept."""

from __future__ import annotations

import json
from typing import Any

from pipeline.config.cluster import VertexConfig
from pipeline.config.config import PipelineConfig
from pipeline.targets.spec import executors, job_of, tasks

SUFFIX = ".json"


def refusals(config: PipelineConfig, target: VertexConfig) -> list[str]:
    """Returns what this target cannot do, one sentence each."""
    found = []
    if not target.pipeline_root.startswith("gs://"):
        found.append(
            f"cluster.vertex.pipeline_root={target.pipeline_root}: Vertex writes to Cloud Storage "
            "alone; use gs://bucket/folder."
        )
    for name, node in target.resources.items():
        kind = node.accelerator
        if kind is not None and "/" in kind:
            found.append(
                f"cluster.vertex.resources.{name}.accelerator={kind}: Vertex names a device by its "
                "model; use NVIDIA_TESLA_T4, NVIDIA_L4, NVIDIA_TESLA_A100, ..."
            )
    return found


def compiled(pipeline: Any, target: VertexConfig, *, trainer_workers: int = 1) -> str:
    """Returns the JSON; the same bytes for the same configuration.

    Args:
        pipeline: of `create_pipeline`.
        target: its profile.
        trainer_workers: Machines that the Trainer trains on, as a CustomJob if there are several.
    """
    job = job_of(pipeline, target)
    spec = job["pipelineSpec"]
    spec["defaultPipelineRoot"] = target.pipeline_root
    job["runtimeConfig"]["gcsOutputDirectory"] = target.pipeline_root
    job["labels"] = {**job.get("labels", {}), **target.labels}
    if target.service_account:
        job["serviceAccount"] = target.service_account
    if trainer_workers > 1:
        label = spec["components"]["Trainer"]["executorLabel"]
        executors(spec)[label] = _custom_job(executors(spec)[label], target, trainer_workers)
    for task in tasks(spec).values():
        task.setdefault("cachingOptions", {})
    return json.dumps(job, indent=1, sort_keys=True) + "\n"


def _custom_job(executor: dict[str, Any], target: VertexConfig, workers: int) -> dict[str, Any]:
    """One pool of the chief, one of all others: the platform gives each TF_CONFIG."""
    container = executor["container"]
    node = target.of_node("Trainer")
    machine: dict[str, Any] = {"machineType": target.machine_type}
    if node.accelerator:
        machine["acceleratorType"] = node.accelerator
        machine["acceleratorCount"] = node.accelerator_count
    pool = {
        "machineSpec": machine,
        "containerSpec": {
            "imageUri": container["image"],
            "command": container["command"],
            "args": container["args"],
        },
    }
    pools = [{**pool, "replicaCount": "1"}, {**pool, "replicaCount": str(workers - 1)}]
    job: dict[str, Any] = {"workerPoolSpecs": pools}
    if target.service_account:
        job["serviceAccount"] = target.service_account
    return {"customJob": {"customJob": {"jobSpec": job}}}
