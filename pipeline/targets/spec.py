"""The pipelineSpec of TFX's compiler, with the corrections that every target needs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pipeline.common.json_types import JsonObject
from pipeline.config.cluster import NodeResources, TargetConfig
from pipeline.targets.executor_input import OUTPUTS_SPEC, output_names
from pipeline.targets.long_values import compress_properties

if TYPE_CHECKING:
    from tfx.orchestration.pipeline import Pipeline

ENTRY_POINT = ("python", "-m", "pipeline.targets.entry_point")
_TASK_SUFFIX = "_task"
_GIB_IN_GB = 1.073741824


def job_of(pipeline: Pipeline, target: TargetConfig) -> JsonObject:
    """Return a PipelineJob as JSON values, schema 2.1.0; runs offline and writes no file.

    Differences from TFX: every container runs our entry point and knows the types of its outputs;
    each node has its resources (TFX drops those of file-based ExampleGens) and retries; the
    producer of a dynamic execution property is an existing task (TFX writes `<id>_task`); long
    execution properties are compressed.
    """
    from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner as tfx_runner

    runner_config = tfx_runner.KubeflowV2DagRunnerConfig(
        default_image=target.image,
        default_commands=list(ENTRY_POINT),
        use_pipeline_spec_2_1=True,
    )
    job = tfx_runner.KubeflowV2DagRunner(config=runner_config).run(pipeline, write_out=False)
    spec = job["pipelineSpec"]
    for name, container in containers(spec).items():
        outputs = json.dumps(spec["components"][name].get("outputDefinitions", {}), sort_keys=True)
        container["args"] = [*container["args"], OUTPUTS_SPEC, outputs]
        if resources := _container_resources(target.of_node(name)):
            container["resources"] = resources
    for name, task in tasks(spec).items():
        for parameter in task.get("inputs", {}).get("parameters", {}).values():
            source = parameter.get("taskOutputParameter")
            if source and source["producerTask"] not in tasks(spec):
                source["producerTask"] = source["producerTask"].removesuffix(_TASK_SUFFIX)
        compress_properties(task)
        if target.retries:
            task["retryPolicy"] = {"maxRetryCount": target.retries}
        if not pipeline.enable_cache:
            task.pop("cachingOptions", None)
        task["taskInfo"] = {"name": name}
    return job


def rename_outputs(spec: JsonObject) -> None:
    """Rename outputs so that none is a prefix of another, in place.

    The entry point passes the component's names to TFX.
    """
    renamed = {}
    for name, component in spec["components"].items():
        artifacts = component.get("outputDefinitions", {}).get("artifacts")
        if artifacts:
            names = renamed[name] = output_names(list(artifacts))
            component["outputDefinitions"]["artifacts"] = {
                names[key]: each for key, each in artifacts.items()
            }
    for task in tasks(spec).values():
        for source in task.get("inputs", {}).get("artifacts", {}).values():
            if place := source.get("taskOutputArtifact"):
                component = tasks(spec)[place["producerTask"]]["componentRef"]["name"]
                key = place["outputArtifactKey"]
                place["outputArtifactKey"] = renamed[component][key]


def drop_driver_of_windows(spec: JsonObject) -> None:
    """Drop the driver of ExampleGens that read several spans, which TFX's driver refuses.

    Instead, their executor resolves the spans. Without a driver, changes of files are not
    detected, so these nodes are not cached.
    """
    for task in tasks(spec).values():
        if "range_config" in task.get("inputs", {}).get("parameters", {}):
            label = spec["components"][task["componentRef"]["name"]]["executorLabel"]
            executors(spec)[label].get("container", {}).pop("lifecycle", None)
            task.pop("cachingOptions", None)


def executors(spec: JsonObject) -> JsonObject:
    """Return the executors by label."""
    return spec["deploymentSpec"]["executors"]


def tasks(spec: JsonObject) -> JsonObject:
    """Return the tasks of the graph by name."""
    return spec["root"]["dag"]["tasks"]


def _container_resources(node: NodeResources) -> JsonObject:
    """Return a container's `resources`, whose memory is in GB."""
    found: JsonObject = {}
    if node.cpu is not None:
        found["cpuLimit"] = node.cpu
    if node.memory_gib is not None:
        found["memoryLimit"] = round(node.memory_gib * _GIB_IN_GB, 6)
    if node.accelerator is not None:
        found["accelerator"] = {"type": node.accelerator, "count": str(node.accelerator_count)}
    return found


def containers(spec: JsonObject) -> JsonObject:
    """Return the containers by the component's name."""
    nodes = {
        name: executors(spec).get(component.get("executorLabel", ""), {})
        for name, component in spec["components"].items()
    }
    return {name: node["container"] for name, node in nodes.items() if "container" in node}
