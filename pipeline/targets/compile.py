"""`python -m pipeline compile`: compile a configuration into the file that a target takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject
from pipeline.config.cluster import KubeflowConfig, VertexConfig
from pipeline.config.config import PipelineConfig
from pipeline.graph.build import create_pipeline
from pipeline.graph.node_names import NodeName
from pipeline.platforms.platform import without_credentials
from pipeline.targets import kubeflow, vertex
from pipeline.targets.disk import disk_advice
from pipeline.targets.refusals import data_gib, node_refusals, refusals
from shared_core.atomic_files import atomic_write

Target = Literal["kubeflow", "vertex"]
# A pod may end at any moment, and Kubeflow does not wait for a checkpoint (docs/cluster.md).
_MINUTES_BETWEEN_CHECKPOINTS = 5.0


def compile_pipeline(config: PipelineConfig, target: Target, *, runner: Any = None) -> str:
    """Return the text of the compiled file.

    Runs offline, and imports no package of a cloud.

    Args:
        config: The checked configuration.
        target: The target platform.
        runner: TFX's compiler, from `spec.dag_runner`; None: a new one.

    Raises:
        ConfigError: The target has no profile in the YAML, or cannot do what the pipeline needs.
            Names each reason with its field and its fix.
    """
    profile = profile_of(config, target)
    there = _at_target(config, profile)
    found = refusals(config, there, profile)
    if isinstance(profile, KubeflowConfig):
        found += kubeflow.refusals(there, profile)
    else:
        found += vertex.refusals(there, profile)
    if found:
        raise ConfigError(without_credentials("\n".join(found)))
    there = vertex.with_time_to_start(there)
    if isinstance(profile, KubeflowConfig):
        records = kubeflow.records_folder(profile, config.name)
        arguments = {"blessed_models": records, "baseline_model": profile.baseline_model}
    else:
        arguments = {}
    graph = create_pipeline(there, **arguments)
    if found := node_refusals(there, profile, graph):
        raise ConfigError(without_credentials("\n".join(found)))
    if isinstance(profile, KubeflowConfig):
        return kubeflow.compiled(graph, profile, there, runner=runner)
    return vertex.compiled(graph, profile, there, runner=runner)


def compile_file(config: PipelineConfig, target: Target, output: Path | None) -> Path:
    """Write the compiled file and return its path; default: in the current folder."""
    text = compile_pipeline(config, target)
    path = output or Path(file_name(config, target))
    with atomic_write(path) as stream:
        stream.write(text)
    return path


def advice(config: PipelineConfig, target: Target) -> str:
    """Return advice on a pipeline that compiles, such as the disk of its nodes; "" if none."""
    profile = profile_of(config, target)
    if isinstance(profile, KubeflowConfig):
        return disk_advice(profile, data_gib(config, profile))
    return ""


def file_name(config: PipelineConfig, target: Target) -> str:
    """Return the default name of the compiled file, such as `name-vertex.json`."""
    suffix = kubeflow.SUFFIX if target == "kubeflow" else vertex.SUFFIX
    return f"{config.name}-{target}{suffix}"


def _at_target(config: PipelineConfig, target: KubeflowConfig | VertexConfig) -> PipelineConfig:
    """Return the configuration with the target's places and defaults."""
    root = target.pipeline_root.rstrip("/")
    data: JsonObject = {"path": target.data_path} if target.data_path else {}
    if target.eval_path:
        data["eval_path"] = target.eval_path
    changed: JsonObject = {
        "data": config.data.model_copy(update=data),
        "output": config.output.model_copy(update={"folder": f"{root}/{config.name}"}),
        "metadata": config.metadata.model_copy(update={"cache": target.cache}),
    }
    training: JsonObject = {}
    if "checkpoint_every_minutes" not in config.training.model_fields_set:
        training["checkpoint_every_minutes"] = _MINUTES_BETWEEN_CHECKPOINTS
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
    """Return the target's section of `cluster:`.

    Raises:
        ConfigError: The section is missing. Shows the lines to add.
    """
    profile = getattr(config.cluster, target) if config.cluster else None
    if profile is None:
        example = "gs://bucket/pipelines" if target == "vertex" else "s3://bucket/pipelines"
        raise ConfigError(
            f"cluster.{target}: required to compile for {target}; add\n"
            f"  cluster:\n    {target}:\n      image: registry/name:1.0\n"
            f"      pipeline_root: {example}"
        )
    return profile
