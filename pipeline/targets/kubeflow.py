"""Kubeflow Pipelines, open source: pipelineSpec YAML of schema 2.1.0.

Features that its backend lacks are replaced: a resolver by a component that reads the records of
blessed models; and ExampleGen's driver, whose work its executor does.
"""

from __future__ import annotations

from typing import Any

import yaml

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject
from pipeline.config.cluster import KubeflowConfig
from pipeline.config.config import PipelineConfig
from pipeline.graph.nodes import NODES
from pipeline.targets.long_values import find_oversized
from pipeline.targets.run_parameters import declare_parameters
from pipeline.targets.spec import containers, executors, job_of, rename_outputs, tasks
from pipeline.targets.tfjob import launch_workers
from pipeline.targets.vertex import worker_pools

_GIB = 2**30
# The drivers of KFP read these names from 2.5 on, and the plain ones before.
_NAMES = {
    "imagePullSecret": ("secretName", "secretNameParameter"),
    "configMapAsEnv": ("configMapName", "configMapNameParameter"),
    "pvcMount": ("constant", "pvcNameParameter"),
}


def compiled(pipeline: Any, target: KubeflowConfig, config: PipelineConfig) -> str:
    """Return the YAML of a pipeline of `create_pipeline`; equal configurations give equal bytes.

    A ConfigError: it is too large to start, or has a resolver.
    """
    spec = job_of(pipeline, target)["pipelineSpec"]
    declare_parameters(spec, config, target)
    spec["defaultPipelineRoot"] = target.pipeline_root
    rename_outputs(spec)
    variables = [{"name": k, "value": v} for k, v in sorted(target.environment.items())]
    for container in containers(spec).values():
        container.pop("lifecycle", None)
        if variables:
            container["env"] = variables
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
    settings = {
        component["executorLabel"]: pod
        for name, component in spec["components"].items()
        if (pod := executor_config(target, name))
    }
    # In the format of KFP's SDK.
    platform = {"platforms": {"kubernetes": {"deploymentSpec": {"executors": settings}}}}
    if sum(pools := worker_pools(config.training)) > 1:
        launch_workers(spec, settings, pools)
    return yaml.safe_dump_all([spec, platform] if settings else [spec], sort_keys=True)


def executor_config(profile: KubeflowConfig, node: str) -> JsonObject:
    """Return a node's KubernetesExecutorConfig as JSON values; {} if it has no settings.

    `tests/pipeline/targets/golden/kfp-kubernetes.yaml` is the output of KFP's own package for the
    same settings.
    """
    config = profile.pod_of(node)
    for field, (name, parameter) in _NAMES.items():
        for item in config.get(field, ()):
            item.setdefault(parameter, {"runtimeValue": {"constant": item[name]}})
    for toleration in config.get("tolerations", ()):
        if "tolerationSeconds" in toleration:  # an int64, which JSON of protobuf has as a text
            toleration["tolerationSeconds"] = str(toleration["tolerationSeconds"])
    metadata = config.get("podMetadata", {})
    labels = {**profile.labels, **metadata.get("labels", {})}
    if labels:
        config["podMetadata"] = {**metadata, "labels": labels}
    # Without `secretNameParameter`: every version reads this form.
    config["secretAsEnv"] = [
        {
            "secretName": secret,
            "keyToEnv": [{"secretKey": k, "envVar": v} for k, v in sorted(keys.items())],
        }
        for secret, keys in sorted(profile.secrets.items())
    ]
    if minutes := profile.of_node(node).timeout_minutes:
        config["activeDeadlineSeconds"] = str(max(1, round(60 * minutes)))
    return {name: value for name, value in config.items() if value}
