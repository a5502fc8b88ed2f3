"""`python -m pipeline compile`: compile a configuration into the file that a target takes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject
from pipeline.config.cluster import KubeflowConfig, VertexConfig
from pipeline.config.config import PipelineConfig
from pipeline.graph.build import create_pipeline
from pipeline.graph.node_names import NodeName
from pipeline.platforms.platform import without_credentials
from pipeline.targets import kubeflow, vertex
from pipeline.targets.refusals import node_refusals, refusals
from shared_core.atomic_files import atomic_write

Target = Literal["kubeflow", "vertex"]
# A pod may end at any moment, and Kubeflow does not wait for a checkpoint
# (docs/cluster-workers.md).
_MINUTES_BETWEEN_CHECKPOINTS = 5.0
# Machines of several workers do not start together: each pulls the image first.
_START_SECONDS = 900.0


def compile_pipeline(config: PipelineConfig, target: Target) -> str:
    """Return the text of the compiled file; runs offline, and imports no package of a cloud.

    Args:
        config: The checked configuration.
        target: The target platform.

    Raises:
        ConfigError: Each thing that the target cannot do, with its field and its fix.
    """
    profile = profile_of(config, target)
    there = _at_target(config, profile)
    if errors := refusals(there, profile):
        raise ConfigError(without_credentials("\n".join(errors)))
    arguments = {}
    if isinstance(profile, KubeflowConfig):
        records = f"{profile.pipeline_root.rstrip('/')}/{config.name}/blessed_models"
        arguments = {"blessed_models": records}
    graph = create_pipeline(there, **arguments)
    if errors := node_refusals(there, profile, graph):
        raise ConfigError(without_credentials("\n".join(errors)))
    if isinstance(profile, KubeflowConfig):
        return kubeflow.compiled(graph, profile, there)
    return vertex.compiled(graph, profile, there)


def compile_file(config: PipelineConfig, target: Target, output: Path | None) -> Path:
    """Write the compiled file and return its path; default: in the current folder."""
    text = compile_pipeline(config, target)
    path = output or Path(file_name(config, target))
    with atomic_write(path) as stream:
        stream.write(text)
    return path


def file_name(config: PipelineConfig, target: Target) -> str:
    """Return the default name of the compiled file, such as `name-vertex.json`."""
    return f"{config.name}-{target}{'.yaml' if target == 'kubeflow' else '.json'}"


def _at_target(config: PipelineConfig, target: KubeflowConfig | VertexConfig) -> PipelineConfig:
    """Return the configuration with the target's places and defaults."""
    root = target.pipeline_root.rstrip("/")
    data: JsonObject = {"path": target.data_path} if target.data_path else {}
    if target.eval_path:
        data["eval_path"] = target.eval_path
    changed: JsonObject = {
        "data": config.data.model_copy(update=data),
        "output": config.output.model_copy(update={"folder": f"{root}/{config.name}"}),
    }
    training: JsonObject = {}
    given = config.training.model_fields_set
    if "checkpoint_every_minutes" not in given:
        training["checkpoint_every_minutes"] = _MINUTES_BETWEEN_CHECKPOINTS
    if (config.training.workers or 1) > 1 and "start_timeout_seconds" not in given:
        training["start_timeout_seconds"] = _START_SECONDS
    if config.training.require_gpu is None and target.of_node(NodeName.TRAINER).has_nvidia_gpu:
        training["require_gpu"] = True
    if training:
        changed["training"] = config.training.model_copy(update=training)
    if target.schema_path:
        schema = config.data_schema.model_copy(update={"path": target.schema_path})
        changed["data_schema"] = schema
    if target.beam is not None:
        changed["beam"] = target.beam
    return config.model_copy(update=changed)


def profile_of(config: PipelineConfig, target: Target) -> KubeflowConfig | VertexConfig:
    """Return the target's section of `cluster:`; a ConfigError shows the lines to add."""
    profile = getattr(config.cluster, target) if config.cluster else None
    if profile is None:
        example = "gs://bucket/pipelines" if target == "vertex" else "s3://bucket/pipelines"
        raise ConfigError(
            f"cluster.{target}: required to compile for {target}; add\n"
            f"  cluster:\n    {target}:\n      image: registry/name:1.0\n"
            f"      pipeline_root: {example}"
        )
    return profile
