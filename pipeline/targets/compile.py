"""`python -m pipeline compile`: a configuration -> the file that a target takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

from pipeline.common.errors import ConfigError
from pipeline.common.whole_files import whole_file
from pipeline.config.cluster import DEFAULT_NODE, KubeflowConfig, VertexConfig
from pipeline.config.config import PACKAGE_SCHEME, PipelineConfig, is_remote
from pipeline.graph.build import create_pipeline
from pipeline.targets import kubeflow, vertex

Target = Literal["kubeflow", "vertex"]
_TAGGED = re.compile(r"^[^\s:@]+(:\d+/[^\s:@]+)?(:[\w][\w.-]*|@sha256:[0-9a-f]{64})$")
# Kubeflow and Vertex give a run's objects names of the pipeline's and more.
_LONGEST_NAME = 52


def compile_pipeline(config: PipelineConfig, target: Target) -> str:
    """Returns the text of the compiled file.

    No cloud is asked, and no package of a cloud imported.

    Raises:
        ConfigError: the target has no profile in the YAML, or cannot do what the pipeline asks:
            every reason is named with its field and its fix.
    """
    profile = _profile(config, target)
    there = at_target(config, profile)
    found = [*_common_refusals(there, profile, target)]
    if isinstance(profile, KubeflowConfig):
        found += kubeflow.refusals(there, profile)
    else:
        found += vertex.refusals(there, profile)
    if found:
        raise ConfigError("\n".join(found))
    if isinstance(profile, KubeflowConfig):
        records = kubeflow.records_folder(profile, config.name)
        graph = create_pipeline(
            there, blessed_models=records, baseline_model=profile.baseline_model
        )
        _check_nodes(graph, profile, target)
        return kubeflow.compiled(graph, profile)
    graph = create_pipeline(there)
    _check_nodes(graph, profile, target)
    workers = config.training.workers or 1
    return vertex.compiled(graph, profile, trainer_workers=workers)


def compile_file(config: PipelineConfig, target: Target, output: Path | None) -> Path:
    """Writes the compiled file; returns its path.

    Args:
        config: the checked configuration.
        target: where it is to run.
        output: the file; None: the pipeline's name, here.
    """
    text = compile_pipeline(config, target)
    suffix = kubeflow.SUFFIX if target == "kubeflow" else vertex.SUFFIX
    path = output or Path(f"{config.name}-{target}{suffix}")
    with whole_file(path) as stream:
        stream.write(text)
    return path


def at_target(config: PipelineConfig, target: KubeflowConfig | VertexConfig) -> PipelineConfig:
    """Returns the configuration with the target's own places in it."""
    root = target.pipeline_root.rstrip("/")
    data: dict[str, Any] = {"path": target.data_path} if target.data_path else {}
    if target.eval_path:
        data["eval_path"] = target.eval_path
    changed: dict[str, Any] = {
        "data": config.data.model_copy(update=data),
        "output": config.output.model_copy(update={"folder": f"{root}/{config.name}"}),
        "metadata": config.metadata.model_copy(update={"cache": target.cache}),
    }
    if target.schema_path:
        schema = config.data_schema.model_copy(update={"path": target.schema_path})
        changed["data_schema"] = schema
    if target.beam is not None:
        changed["beam"] = target.beam
    return config.model_copy(update=changed)


def _profile(config: PipelineConfig, target: Target) -> KubeflowConfig | VertexConfig:
    profile = getattr(config.cluster, target) if config.cluster else None
    if profile is None:
        example = "gs://bucket/pipelines" if target == "vertex" else "s3://bucket/pipelines"
        raise ConfigError(
            f"cluster.{target}: required to compile for {target}; add\n"
            f"  cluster:\n    {target}:\n      image: registry/name:1.0\n"
            f"      pipeline_root: {example}"
        )
    return profile


def _common_refusals(
    config: PipelineConfig, profile: KubeflowConfig | VertexConfig, target: Target
) -> list[str]:
    section = f"cluster.{target}"
    found = []
    if not _TAGGED.match(profile.image):
        found.append(
            f"{section}.image={profile.image}: no tag, so that another run may get another image; "
            "use name:1.0, or name@sha256:..."
        )
    if not is_remote(profile.pipeline_root):
        found.append(
            f"{section}.pipeline_root={profile.pipeline_root}: a folder of this machine, which no "
            "pod has; use gs://, s3:// or another place that tf.io.gfile knows."
        )
    for field, path, own in (
        ("data.path", config.data.path, f"{section}.data_path"),
        ("data.eval_path", config.data.eval_path, f"{section}.eval_path"),
        ("schema.path", config.data_schema.path, f"{section}.schema_path"),
        ("serving.push_folder", config.serving.push_folder, None),
    ):
        fix = f"name a remote place as {own}" if own else "name a remote folder"
        if path and path.startswith(PACKAGE_SCHEME):
            found.append(
                f"{field}={path}: a file inside a Python package of this machine; copy it to a "
                f"place that the cluster reads and {fix}."
            )
        elif path and not is_remote(path):
            found.append(f"{field}={path}: a path of this machine, which no pod has; {fix}.")
    if len(config.name) > _LONGEST_NAME:
        found.append(
            f"name={config.name}: {len(config.name)} characters; {target} makes names of runs "
            f"and pods of it, use {_LONGEST_NAME} or fewer."
        )
    found += _workers(config, target)
    return [*found, *_beam_processes(config, profile, section)]


def _workers(config: PipelineConfig, target: Target) -> list[str]:
    training = config.training
    workers = training.workers or 1
    if target == "kubeflow" and workers > 1:
        return [
            f"training.workers={workers}: a node of Kubeflow is one pod, in which {workers} "
            "processes would share its resources; leave it out and use mirrored, or Vertex."
        ]
    if workers == 1 and training.strategy in ("multi_worker", "parameter_server"):
        return [
            f"training.strategy={training.strategy} with one worker: give training.workers, or "
            "use mirrored or one_device."
        ]
    return []


def _beam_processes(
    config: PipelineConfig, profile: KubeflowConfig | VertexConfig, section: str
) -> list[str]:
    processes = getattr(config.beam, "workers", None)
    if config.beam.engine != "multi_processing" or not processes:
        return []
    cpu = profile.of_node("Transform").cpu
    if cpu is None or processes <= cpu:
        return []
    return [
        f"beam.workers={processes} exceeds {section}.resources: Transform gets {cpu:g} cores; "
        f"ask for {processes} there, or use {max(1, int(cpu))} workers."
    ]


def _check_nodes(graph: Any, profile: KubeflowConfig | VertexConfig, target: Target) -> None:
    names = [node.id for node in graph.components]
    unknown = [n for n in profile.resources if n not in (*names, DEFAULT_NODE)]
    if unknown:
        raise ConfigError(
            f"cluster.{target}.resources.{unknown[0]}: no node has this name; there are "
            f"{', '.join(names)}, and `{DEFAULT_NODE}`."
        )
