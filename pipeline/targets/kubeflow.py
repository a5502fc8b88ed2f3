"""Kubeflow Pipelines, open source: pipelineSpec YAML of schema 2.1.0.

Features that its backend lacks are replaced: a resolver by a component that reads the records of
blessed models, and ExampleGen's driver by values that are resolved at compile time.
"""

from __future__ import annotations

from typing import Any

import yaml

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject
from pipeline.config.cluster import LABEL_KEY, LABEL_VALUE, KubeflowConfig
from pipeline.config.config import PipelineConfig
from pipeline.graph.nodes import NODES
from pipeline.targets.long_values import find_oversized
from pipeline.targets.places import places
from pipeline.targets.pod_spec import executor_config, reserve_disk
from pipeline.targets.run_parameters import declare_parameters
from pipeline.targets.spec import each_container, executors, job_of, rename_outputs, tasks
from pipeline.targets.spec_types import Container, PipelineSpec
from pipeline.targets.tfjob import launch_workers
from pipeline.targets.vertex import worker_pools

SUFFIX = ".yaml"
# Argo labels pods with the run's name: this name, a hyphen and five letters, at most 63 characters.
_LONGEST_NAME = 57


def records_folder(target: KubeflowConfig, name: str) -> str:
    """Return the folder of the records of blessed models."""
    return f"{target.pipeline_root.rstrip('/')}/{name}/blessed_models"


def refusals(config: PipelineConfig, target: KubeflowConfig) -> list[str]:
    """Return what this target cannot do, one sentence each."""
    found = []
    if len(config.name) > _LONGEST_NAME:
        found.append(
            f"name={config.name}: {len(config.name)} characters; Kubeflow's runs and their pods "
            f"are called this and 6 more, of 63 at most: use {_LONGEST_NAME} or fewer."
        )
    for key, value in target.labels.items():
        if not (LABEL_KEY.fullmatch(key) and LABEL_VALUE.fullmatch(value)):
            found.append(
                f"cluster.kubeflow.labels.{key}={value}: not a Kubernetes label; use letters, "
                "digits, and - _ . between them, 63 at most."
            )
    found += [
        f"{field}={path}: no TensorFlow has a file system for minio://; write s3://, give MinIO's "
        "address as cluster.kubeflow.environment.AWS_ENDPOINT_URL, and see docs/kubeflow.md for "
        "its secret."
        for field, path, _ in places(config, target)
        if path.startswith("minio://")
    ]
    if target.pipeline_root.startswith("s3://") and config.beam.engine not in (
        "in_memory",
        "dataflow",
    ):
        found.append(
            f"beam.engine={config.beam.engine}: TensorFlow in Beam's workers does not know s3://, "
            "only in the node's own process; give cluster.kubeflow.beam={engine: in_memory}, or "
            "use gs://."
        )
    if config.beam.engine == "dataflow":
        found.append(
            "beam.engine=dataflow is Google Cloud's: give cluster.kubeflow.beam, such as "
            "{engine: in_memory}, or {engine: flink, options: [...]} with a job server that pods "
            "reach."
        )
    return found


def compiled(
    pipeline: Any,
    target: KubeflowConfig,
    config: PipelineConfig,
    *,
    runner: Any = None,
) -> str:
    """Return the YAML; the same configuration gives the same bytes.

    Args:
        pipeline: The pipeline from `create_pipeline`, without resolvers.
        target: The target's section of `cluster:`.
        config: The configuration at the target.
        runner: TFX's compiler, from `spec.dag_runner`; None: a new one.

    Raises:
        ConfigError: The compiled pipeline is too large to start, or has a resolver.
    """
    spec = job_of(pipeline, target, runner)["pipelineSpec"]
    declare_parameters(spec, config, target)
    spec["defaultPipelineRoot"] = target.pipeline_root
    rename_outputs(spec)
    each_container(spec, lambda name, container: container.pop("lifecycle", None))
    if target.environment:
        variables = [{"name": k, "value": v} for k, v in sorted(target.environment.items())]
        each_container(spec, lambda name, container: container.update(env=variables))
    each_container(spec, lambda name, container: _reserve_disk(target, name, container))
    for name, task in tasks(spec).items():
        # Without a driver, changes of the files at a path are not detected.
        if name in NODES and NODES[name].reads_outside:
            task.pop("cachingOptions", None)
    for label, executor in executors(spec).items():
        if "resolver" in executor:
            raise ConfigError(
                f"nodes: {label.removesuffix('_executor')}: Kubeflow has no resolvers. Leave the "
                "node out, or compile for Vertex."
            )
        if accelerator := executor.get("container", {}).get("resources", {}).get("accelerator"):
            # KFP's backend reads only the new names from 2.4 on, and only the old ones before.
            accelerator["resourceType"] = accelerator["type"]
            accelerator["resourceCount"] = accelerator["count"]
    if found := find_oversized(spec, "kubeflow"):
        raise ConfigError("\n".join(found))
    documents = [spec]
    platform = _platform(spec, target)
    if sum(pools := worker_pools(config.training)) > 1:
        launch_workers(spec, platform, pools)
    if platform:
        documents.append(platform)
    return yaml.safe_dump_all(documents, sort_keys=True)


def _reserve_disk(target: KubeflowConfig, name: str, container: Container) -> None:
    if gib := target.of_node(name).ephemeral_storage_gib:
        reserve_disk(container, gib)


def _platform(spec: PipelineSpec, target: KubeflowConfig) -> JsonObject:
    """Return the Kubernetes settings, in the format of KFP's SDK, for after the pipelineSpec."""
    found: JsonObject = {}
    for name, component in spec["components"].items():
        if config := executor_config(target, name):
            found[component["executorLabel"]] = config
    return {"platforms": {"kubernetes": {"deploymentSpec": {"executors": found}}}} if found else {}
