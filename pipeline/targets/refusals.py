"""What the targets cannot do: rows of a condition and words, which name the field and the fix."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.config.cluster import DEFAULT_NODE, KubeflowConfig, TargetConfig, VertexConfig
from pipeline.config.config import PipelineConfig
from pipeline.graph.node_names import NodeName
from pipeline.targets.field_checks import credential_refusals, field_refusals, place_refusals
from pipeline.targets.vertex import is_custom_job
from trainer_module.common.code_fingerprint import is_installed

# Argo labels pods with the run's name: this name, a hyphen and five letters, at most 63 characters.
_LONGEST_NAME = 57
_JOB_SERVER = "flink-job-server.flink.svc:8099"
# The node itself, on every machine.
_OWN_HOST = re.compile(
    r"((.*\.)?localhost|127\..*|0\.0\.0\.0|\[?::1?\]?|\[?::ffff:127\..*)\.?", re.IGNORECASE
)
_BUILD_FILES = ("pyproject.toml", "setup.py")
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
}
"""Vertex' AcceleratorType -> a machine of the series that has it."""

_Rows = Iterator[tuple[Any, str]]
"""Whether a rule is broken, and the sentence on it."""


def refusals(there: PipelineConfig, profile: TargetConfig) -> list[str]:
    """Return what the target cannot do with its configuration, one sentence each."""
    rows = [*_general(there, profile), *_job_server(there, profile)]
    if isinstance(profile, KubeflowConfig):
        rows += _kubeflow(there, profile)
    if isinstance(profile, VertexConfig):
        rows += [*_vertex(there, profile), *_vertex_nodes(there, profile)]
    secrets = credential_refusals(there, profile)
    found = [
        *field_refusals(profile),
        *place_refusals(there, profile),
        *_functions(there),
        *(words for is_broken, words in rows if is_broken),
    ]
    shown = [each for each in found if not any(value in each for value in secrets)]
    return list(dict.fromkeys([*secrets.values(), *shown]))


def _general(there: PipelineConfig, profile: TargetConfig) -> _Rows:
    training, tracking = there.training, there.tracking
    one_worker = (training.workers or 1) == 1
    yield (
        one_worker and training.strategy in ("multi_worker", "parameter_server"),
        f"training.strategy={training.strategy} with one worker: give training.workers, or "
        "use mirrored or one_device.",
    )
    yield (
        tracking is not None,
        f"tracking.mlflow={tracking and tracking.mlflow}: only `run` exports to MLflow, and the "
        "platform runs the nodes alone. Use --set tracking=null.",
    )


def _job_server(there: PipelineConfig, profile: TargetConfig) -> _Rows:
    """Yield the reasons why the node and an engine behind a job server cannot reach each other."""
    beam, field = there.beam, f"{profile.section}.beam.options"
    endpoint = beam.option("job_endpoint") or "embed"
    is_elsewhere = endpoint != "embed"
    yield (
        is_elsewhere and _OWN_HOST.fullmatch(endpoint.rpartition(":")[0]),
        f"beam.options: --job_endpoint={endpoint} is the node itself, where no job server "
        f"runs; give one that nodes reach in {field}, such as --job_endpoint={_JOB_SERVER}.",
    )
    yield (
        is_elsewhere and beam.option("environment_type") == "LOOPBACK",
        f"beam.options: --environment_type=LOOPBACK runs the Python code in the node, which the "
        f"machines of {beam.engine} do not reach; in {field}, use --environment_type=EXTERNAL "
        "with --environment_config=HOST:PORT of Beam's worker pool beside each of them, or "
        f"--environment_type=DOCKER with {profile.image}.",
    )


def _kubeflow(there: PipelineConfig, profile: KubeflowConfig) -> _Rows:
    name, engine = there.name, there.beam.engine
    yield (
        len(name) > _LONGEST_NAME,
        f"name={name}: {len(name)} characters; Kubeflow's runs and their pods are called this and "
        f"6 more, of 63 at most: use {_LONGEST_NAME} or fewer.",
    )
    yield (
        profile.pipeline_root.startswith("s3://") and engine not in ("in_memory", "dataflow"),
        f"beam.engine={engine}: TensorFlow in Beam's workers does not know s3://, only in the "
        "node's own process; give cluster.kubeflow.beam={engine: in_memory}, or use gs://.",
    )
    yield (
        engine == "dataflow",
        "beam.engine=dataflow is Google Cloud's: give cluster.kubeflow.beam, such as {engine: "
        "in_memory}, or {engine: flink, options: [...]} with a job server that pods reach.",
    )


def _vertex(there: PipelineConfig, profile: VertexConfig) -> _Rows:
    yield (
        not profile.pipeline_root.startswith("gs://"),
        f"cluster.vertex.pipeline_root={profile.pipeline_root}: Vertex writes to Cloud Storage "
        "alone; use gs://bucket/folder.",
    )
    kind = profile.of_node(NodeName.TRAINER).accelerator
    machine = _ACCELERATORS.get(kind or "", profile.machine_type)
    yield (
        is_custom_job(there.training, profile)
        and profile.machine_type.split("-")[0] != machine.split("-")[0],
        f"cluster.vertex.machine_type={profile.machine_type}: has no {kind}; use {machine}.",
    )


def _vertex_nodes(there: PipelineConfig, profile: VertexConfig) -> _Rows:
    for name, node in profile.resources.items():
        field, kind = f"cluster.vertex.resources.{name}", node.accelerator
        minutes = node.timeout_minutes or 0
        is_custom = name == NodeName.TRAINER and is_custom_job(there.training, profile)
        yield (
            kind and kind not in _ACCELERATORS,
            f"{field}.accelerator={kind}: Vertex names a device by its model; use "
            f"{', '.join(_ACCELERATORS)}.",
        )
        yield (
            minutes and not is_custom,
            f"{field}.timeout_minutes={minutes:g}: Vertex has no time limit of a node, "
            "but of a Trainer on several workers (training.workers); leave it out.",
        )
        yield (
            is_custom and (node.cpu or node.memory_gib),
            f"{field}: cpu and memory_gib are not asked for by the machines of a Trainer on "
            "several workers, or with spot; leave them out and name "
            f"cluster.vertex.machine_type (now {profile.machine_type}).",
        )


def _functions(there: PipelineConfig) -> Iterator[str]:
    """Yield functions outside packages: an image contains only installed modules."""
    derive = {there.features.derive: "features.derive"} if there.features.derive else {}
    nodes = {row.path: f"nodes.{i}.class" for i, row in enumerate(there.nodes)}
    for function, field in {**derive, **there.training_functions, **nodes}.items():
        module = function.partition(".")[0]
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError):
            spec = None
        if spec is None:
            yield (
                f"{field}={function}: there is no Python module {module!r} here; install its "
                "package, so that an image built here has it."
            )
            continue
        if is_installed(spec):
            continue
        inside = next(iter(spec.submodule_search_locations or ()), None) or spec.origin or module
        place = Path(inside)
        folders = [place.parent, *([place.parents[1]] if place.parent.name == "src" else [])]
        if not any((folder / name).is_file() for folder in folders for name in _BUILD_FILES):
            yield (
                f"{field}={function}: {place} is part of no package, and an image has what is "
                f"installed alone. Put a pyproject.toml into {place.parent} ([project], name = "
                f'"{module}", version = "1.0") and build the image with --with {place.parent}.'
            )


def node_refusals(there: PipelineConfig, profile: TargetConfig, graph: Any) -> list[str]:
    """Return the errors in the resources and parameters of a graph's nodes, one sentence each."""
    from tfx.dsl.components.base.base_beam_component import BaseBeamComponent

    nodes = {node.id: node for node in graph.components}
    errors = [
        f"{profile.section}.resources.{name}: no node has this name; there are "
        f"{', '.join(nodes)}, and `{DEFAULT_NODE}`."
        for name in profile.resources
        if name not in (*nodes, DEFAULT_NODE)
    ]
    for i, row in enumerate(there.nodes):
        for key, value in nodes[row.id].exec_properties.items():
            if isinstance(value, list | dict):  # TFX would pass their JSON text
                what = "list" if isinstance(value, list) else "mapping"
                errors.append(
                    f"{there.origin.prefix(('nodes', i, 'parameters', key))}nodes.{i}.parameters."
                    f"{key}: is a {what}; Kubeflow and Vertex hand over numbers and texts alone. "
                    "Take a text in the component, and decode it there."
                )
    processes = there.beam.workers
    for name, node in nodes.items():
        cpu = profile.of_node(name).cpu
        if isinstance(node, BaseBeamComponent) and cpu is not None and processes > cpu:
            return [
                *errors,
                f"beam.workers={processes} exceeds {profile.section}.resources: {name} gets "
                f"{cpu:g} cores; ask for {processes} there, or use {max(1, int(cpu))} workers.",
            ]
    return errors
