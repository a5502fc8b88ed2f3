"""Vertex AI Pipelines: a PipelineJob as JSON; resolvers and ExampleGen's driver are kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject
from pipeline.config.cluster import VertexConfig
from pipeline.config.config import PipelineConfig
from pipeline.graph.node_names import NodeName
from pipeline.targets.long_values import find_oversized
from pipeline.targets.run_parameters import declare_parameters
from pipeline.targets.spec import drop_driver_of_windows, executors, job_of, tasks
from pipeline.targets.spec_types import Executor
from trainer_module import TrainerConfig

SUFFIX = ".json"
_ACCELERATORS = {
    "NVIDIA_TESLA_T4": "n1-standard-8",
    "NVIDIA_L4": "g2-standard-8",
    "NVIDIA_TESLA_A100": "a2-highgpu-1g",
    "NVIDIA_A100_80GB": "a2-ultragpu-1g",
    "NVIDIA_H100_80GB": "a3-highgpu-8g",
    "NVIDIA_H100_MEGA_80GB": "a3-megagpu-8g",
    "NVIDIA_H200_141GB": "a3-ultragpu-8g",
    "NVIDIA_B200": "a4-highgpu-8g",
    "NVIDIA_TESLA_V100": "n1-standard-8",
    "NVIDIA_TESLA_P100": "n1-standard-8",
    "NVIDIA_TESLA_P4": "n1-standard-8",
    "TPU_V2": "cloud-tpu",
    "TPU_V3": "cloud-tpu",
}
"""Vertex' AcceleratorType -> a machine of the series that has it."""

_COUNTS = (1, 2, 4, 8, 16)
_TPU_CORES = (8, 32, 64, 128)
_LABEL_KEY = re.compile(r"^[a-z][a-z0-9_-]{0,62}$")
_LABEL_VALUE = re.compile(r"^[a-z0-9_-]{0,63}$")
# The machines of a CustomJob do not start together: each pulls the image first.
_START_SECONDS = 900.0


def refusals(config: PipelineConfig, target: VertexConfig) -> list[str]:
    """Return what this target cannot do, one sentence each."""
    return [
        *_places(target),
        *_devices(config, target),
        *_trainer(config, target),
    ]


def _places(target: VertexConfig) -> Iterator[str]:
    if not target.pipeline_root.startswith("gs://"):
        yield (
            f"cluster.vertex.pipeline_root={target.pipeline_root}: Vertex writes to Cloud Storage "
            "alone; use gs://bucket/folder."
        )
    for key, value in target.labels.items():
        if not (_LABEL_KEY.match(key) and _LABEL_VALUE.match(value)):
            yield (
                f"cluster.vertex.labels.{key}={value}: not a Google Cloud label; use lower-case "
                "letters, digits, - and _, 63 at most, and begin the name with a letter."
            )


def _devices(config: PipelineConfig, target: VertexConfig) -> Iterator[str]:
    for name, node in target.resources.items():
        field, kind, count = (
            f"cluster.vertex.resources.{name}",
            node.accelerator,
            node.accelerator_count,
        )
        if kind is None:
            continue
        if kind not in _ACCELERATORS:
            yield (
                f"{field}.accelerator={kind}: Vertex names a device by its model; use "
                f"{', '.join(_ACCELERATORS)}."
            )
        elif count not in (counts := _TPU_CORES if kind.startswith("TPU") else _COUNTS):
            yield (
                f"{field}.accelerator_count={count}: a machine has {', '.join(map(str, counts))} "
                f"of {kind}."
            )


def _trainer(config: PipelineConfig, target: VertexConfig) -> Iterator[str]:
    """Yield invalid settings of a Trainer on several workers, or settings that require one."""
    custom = _is_custom_job(config, target)
    if target.region and target.key_region not in (None, target.region):
        yield (
            f"cluster.vertex.encryption_key={target.encryption_key}: a key of {target.key_region}, "
            f"and cluster.vertex.region is {target.region}; use a key of that region."
        )
    for name, node in target.resources.items():
        field = f"cluster.vertex.resources.{name}"
        if node.timeout_minutes and not (custom and name == NodeName.TRAINER):
            yield (
                f"{field}.timeout_minutes={node.timeout_minutes:g}: Vertex has no time limit of a "
                "node, but of a Trainer on several workers (training.workers); leave it out."
            )
        if custom and name == NodeName.TRAINER and (node.cpu or node.memory_gib):
            yield (
                f"{field}: cpu and memory_gib are not asked for by the machines of a Trainer on "
                "several workers, or with spot or boot_disk_gib; leave them "
                f"out and name cluster.vertex.machine_type (now {target.machine_type})."
            )
    kind = target.of_node(NodeName.TRAINER).accelerator
    if custom and kind in _ACCELERATORS:
        series = _ACCELERATORS[kind].split("-")[0]
        if target.machine_type.split("-")[0] != series:
            yield (
                f"cluster.vertex.machine_type={target.machine_type}: has no {kind}; use "
                f"{_ACCELERATORS[kind]}."
            )


def _is_custom_job(config: PipelineConfig, target: VertexConfig) -> bool:
    """Return whether the Trainer is a CustomJob: several workers, or settings that only it has."""
    return (config.training.workers or 1) > 1 or target.needs_custom_job


def with_time_to_start(config: PipelineConfig) -> PipelineConfig:
    """Return the configuration with a start timeout for machines that start minutes apart."""
    training = config.training
    if (training.workers or 1) == 1 or "start_timeout_seconds" in training.model_fields_set:
        return config
    longer = training.model_copy(update={"start_timeout_seconds": _START_SECONDS})
    return config.model_copy(update={"training": longer})


def compiled(
    pipeline: Any,
    target: VertexConfig,
    config: PipelineConfig,
    *,
    runner: Any = None,
) -> str:
    """Return the JSON; the same configuration gives the same bytes.

    Args:
        pipeline: The pipeline from `create_pipeline`.
        target: The target's section of `cluster:`.
        config: The configuration at the target.
        runner: TFX's compiler, from `spec.dag_runner`; None: a new one.

    Raises:
        ConfigError: The compiled pipeline is too large to start.
    """
    job = job_of(pipeline, target, runner)
    spec = job["pipelineSpec"]
    declare_parameters(spec, config, target)
    spec["defaultPipelineRoot"] = target.pipeline_root
    job["runtimeConfig"]["gcsOutputDirectory"] = target.pipeline_root
    job["labels"] = {**job.get("labels", {}), **target.labels}
    if target.service_account:
        job["serviceAccount"] = target.service_account
    if target.network:
        job["network"] = target.network
    if target.encryption_key:
        job["encryptionSpec"] = {"kmsKeyName": target.encryption_key}
    pools = worker_pools(config.training)
    if sum(pools) > 1 or target.needs_custom_job:
        label = spec["components"][NodeName.TRAINER]["executorLabel"]
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


def _custom_job(executor: Executor, target: VertexConfig, pools: tuple[int, ...]) -> JsonObject:
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
    if target.boot_disk_gib:
        pool["diskSpec"] = {"bootDiskSizeGb": target.boot_disk_gib}
    job: JsonObject = {"workerPoolSpecs": [{**pool, "replicaCount": str(count)} for count in pools]}
    if scheduling := _scheduling(target):
        job["scheduling"] = scheduling
    if target.service_account:
        job["serviceAccount"] = target.service_account
    return {"customJob": {"customJob": {"jobSpec": job}}}


def _scheduling(target: VertexConfig) -> JsonObject:
    found: JsonObject = {}
    if minutes := target.of_node(NodeName.TRAINER).timeout_minutes:
        found["timeout"] = f"{max(1, round(60 * minutes))}s"
    if target.spot:
        found["strategy"] = "SPOT"
    return found
