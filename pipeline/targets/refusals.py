"""Check what no target can do; each error names the field and the fix at compile time."""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.common.errors import ConfigError
from pipeline.config.cluster import DEFAULT_NODE, TargetConfig
from pipeline.config.config import PipelineConfig, is_remote
from pipeline.data.data_sources import files
from pipeline.graph.node_names import NodeName
from pipeline.targets.field_checks import credential_refusals, field_refusals
from pipeline.targets.places import place_refusals
from trainer_module.common.code_fingerprint import is_installed

_JOB_SERVER = "flink-job-server.flink.svc:8099"
# The node itself, on every machine.
_OWN_HOST = re.compile(
    r"((.*\.)?localhost|127\..*|0\.0\.0\.0|\[?::1?\]?|\[?::ffff:127\..*)\.?", re.IGNORECASE
)
_BUILD_FILES = ("pyproject.toml", "setup.py")
_GIB = 2**30
# Peak memory: imports, plus what Beam's runner stores per byte of a CSV to shuffle it.
_GIB_OF_A_PROCESS = 1.0
_GIB_PER_GIB = 8.0
# Assumed memory of a container without a request: the memory of a common node.
_GIB_OF_A_POD = 16.0


def refusals(config: PipelineConfig, there: PipelineConfig, profile: TargetConfig) -> list[str]:
    """Return the errors that apply to every target, one sentence each.

    Args:
        config: The configuration on this machine, where the size of the data is known.
        there: The configuration at the target.
        profile: The target's section of `cluster:`.
    """
    secrets = credential_refusals(there, profile)
    found = [
        *field_refusals(profile),
        *place_refusals(there, profile),
        *_functions(there),
        *_workers(there),
        *_job_server(there, profile),
        *_data_in_memory(config, there, profile),
        *_tracking(there),
    ]
    shown = [each for each in found if not any(value in each for value in secrets)]
    return list(dict.fromkeys([*secrets.values(), *shown]))


def node_refusals(there: PipelineConfig, profile: TargetConfig, graph: Any) -> list[str]:
    """Return the errors in the resources of a graph's nodes, one sentence each."""
    from tfx.dsl.components.base.base_beam_component import BaseBeamComponent

    names = [node.id for node in graph.components]
    found = [
        f"{profile.section}.resources.{name}: no node has this name; there are "
        f"{', '.join(names)}, and `{DEFAULT_NODE}`."
        for name in profile.resources
        if name not in (*names, DEFAULT_NODE)
    ]
    found += _unsupported_parameters(there, graph)
    processes = there.beam.workers
    field = f"beam.workers={processes}"
    for node in graph.components:
        cpu = profile.of_node(node.id).cpu
        if isinstance(node, BaseBeamComponent) and cpu is not None and processes > cpu:
            return [
                *found,
                f"{field} exceeds {profile.section}.resources: {node.id} gets {cpu:g} cores; ask "
                f"for {processes} there, or use {max(1, int(cpu))} workers.",
            ]
    return found


def _unsupported_parameters(there: PipelineConfig, graph: Any) -> Iterator[str]:
    """Yield parameters that the platforms lack: TFX would pass their JSON text."""
    nodes = {node.id: node for node in graph.components}
    for i, row in enumerate(there.nodes):
        for key, value in nodes[row.id].exec_properties.items():
            if isinstance(value, list | dict):
                what = "list" if isinstance(value, list) else "mapping"
                yield (
                    f"{there.origin.prefix(('nodes', i, 'parameters', key))}nodes.{i}.parameters."
                    f"{key}: is a {what}; Kubeflow and Vertex hand over numbers and texts alone. "
                    "Take a text in the component, and decode it there."
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


def _workers(there: PipelineConfig) -> Iterator[str]:
    training = there.training
    if (training.workers or 1) == 1 and training.strategy in ("multi_worker", "parameter_server"):
        yield (
            f"training.strategy={training.strategy} with one worker: give training.workers, or "
            "use mirrored or one_device."
        )


def _job_server(there: PipelineConfig, profile: TargetConfig) -> Iterator[str]:
    """Yield the reasons why the node and an engine behind a job server cannot reach each other."""
    beam, field = there.beam, f"{profile.section}.beam.options"
    endpoint = beam.option("job_endpoint")
    if endpoint is None or endpoint == "embed":
        return
    if _OWN_HOST.fullmatch(endpoint.rpartition(":")[0]):
        yield (
            f"beam.options: --job_endpoint={endpoint} is the node itself, where no job server "
            f"runs; give one that nodes reach in {field}, such as --job_endpoint={_JOB_SERVER}."
        )
    if beam.option("environment_type") == "LOOPBACK":
        yield (
            f"beam.options: --environment_type=LOOPBACK runs the Python code in the node, which "
            f"the machines of {beam.engine} do not reach; in {field}, use "
            "--environment_type=EXTERNAL with --environment_config=HOST:PORT of Beam's worker "
            f"pool beside each of them, or --environment_type=DOCKER with {profile.image}."
        )


def _engine_for_large_data(profile: TargetConfig) -> str:
    """Return the setting that moves Beam's shuffle out of the node's memory; "" for none."""
    section = profile.section
    if section.endswith("vertex"):
        missing = [each for each in ("project", "region") if not getattr(profile, each, None)]
        names = " and ".join(f"{section}.{each}" for each in missing)
        return f"{section}.beam={{engine: dataflow}}{f' with {names}' if missing else ''}"
    if profile.pipeline_root.startswith("s3://"):
        return ""  # TensorFlow in Flink's workers does not support s3://
    options = f"--job_endpoint={_JOB_SERVER}, --environment_type=EXTERNAL"
    return (
        f"{section}.beam={{engine: flink, options: [{options}, "
        "--environment_config=localhost:50000]} with the address of your job server"
    )


def _tracking(there: PipelineConfig) -> Iterator[str]:
    """Yield an error if runs are to be exported: on a platform nothing runs after the last node."""
    if there.tracking is not None:
        yield (
            f"tracking.mlflow={there.tracking.mlflow}: only `run` exports to MLflow, and the "
            "platform runs the nodes alone. Use --set tracking=null."
        )


def _data_in_memory(
    config: PipelineConfig, there: PipelineConfig, profile: TargetConfig
) -> list[str]:
    """Return an error if Beam's runner, which stores all shuffled rows, needs too much memory."""
    if there.beam.engine not in ("in_memory", "multi_processing"):
        return []
    gib, how = profile.data_gib, f"{profile.section}.data_gib={profile.data_gib}"
    if gib is None:
        gib = data_gib(config, profile)
        how = f"data.path={config.data.path} has {gib or 0:.1f} GiB on this machine"
    if gib is None:
        return []
    needed = _GIB_OF_A_PROCESS + _GIB_PER_GIB * gib
    asked = profile.of_node(NodeName.EXAMPLE_GEN).memory_gib
    if needed <= (asked or _GIB_OF_A_POD):
        return []
    has = f"gets {asked:g}" if asked else f"is assumed to get {_GIB_OF_A_POD:g}"
    fixes = [f"{profile.section}.resources.{NodeName.EXAMPLE_GEN}.memory_gib={math.ceil(needed)}"]
    if engine := _engine_for_large_data(profile):
        fixes.append(engine)
    return [
        f"beam.engine={there.beam.engine}: {how}, which Beam's own runner keeps in the memory of "
        f"one container, about {needed:.0f} GiB, and {NodeName.EXAMPLE_GEN} {has}: give "
        f"{', or '.join(fixes)}."
    ]


def data_gib(config: PipelineConfig, profile: TargetConfig) -> float | None:
    """Return the size of the data in GiB from the profile, or else on this machine.

    Returns:
        The size in GiB; None if unknown.
    """
    if profile.data_gib is not None or is_remote(config.data.path):
        return profile.data_gib
    try:
        found = files(
            config.data.path, "data.path", source=config.data.source, spans=config.data.spans
        )
    except ConfigError:
        return None  # `run` reports it
    return sum(file.stat().st_size for file in found) / _GIB
