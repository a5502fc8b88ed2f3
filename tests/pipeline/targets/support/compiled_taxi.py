"""The taxi pipeline with a profile of each target: its configuration and its compiled file."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import yaml

from pipeline.config.cluster import TargetConfig
from pipeline.config.config import PipelineConfig
from pipeline.config.config_file import load_config

ROOT = Path(__file__).resolve().parents[4]
TAXI = ROOT / "examples" / "taxi" / "pipeline.yaml"
GOLDEN = Path(__file__).parents[1] / "golden"
FILES = {"kubeflow": GOLDEN / "taxi-kubeflow.yaml", "vertex": GOLDEN / "taxi-vertex.json"}
BUCKETS = {"kubeflow": "s3://bucket", "vertex": "gs://bucket"}


def settings(target: str, *overrides: str) -> list[str]:
    """Return values of `--set`; a field that begins with a dot is one of `cluster.<target>`."""
    bucket = BUCKETS[target]
    profile = (
        ".image=registry.example/tfx-largebatch:1.0",
        f".pipeline_root={bucket}/root",
        f".data_path={bucket}/data/data.csv",
    )
    given = (*profile, *overrides)
    return [f"cluster.{target}{each}" if each[0] == "." else each for each in given]


def taxi(target: str, *overrides: str) -> PipelineConfig:
    return load_config(TAXI, settings(target, *overrides))


def taxi_at_target(target: str, *overrides: str) -> tuple[PipelineConfig, TargetConfig]:
    """Return the configuration at the target, and the target's profile."""
    from pipeline.targets.compile import _at_target, profile_of  # imports TFX: seconds

    config = taxi(target, *overrides)
    profile = profile_of(config, target)
    return _at_target(config, profile), profile


@functools.cache
def compiled(target: str, *overrides: str) -> str:
    """Return the compiled file; the same settings are compiled once per process."""
    from pipeline.targets.compile import compile_pipeline

    return compile_pipeline(taxi(target, *overrides), target)


def documents_of(text: str) -> list[Any]:
    return list(yaml.load_all(text, yaml.CSafeLoader))


def spec_of(text: str) -> dict[str, Any]:
    first = documents_of(text)[0]
    return first.get("pipelineSpec", first)


def tasks_of(spec: dict[str, Any]) -> dict[str, Any]:
    return spec["root"]["dag"]["tasks"]


def executor_of(spec: dict[str, Any], node: str) -> dict[str, Any]:
    return spec["deploymentSpec"]["executors"][spec["components"][node]["executorLabel"]]


def pods_of(text: str) -> dict[str, Any]:
    """Return the Kubernetes settings of the nodes by executor."""
    return documents_of(text)[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]


def cut_to(text: str, node: str) -> str:
    """Return the compiled file with one of its nodes alone."""
    first, *rest = documents_of(text)
    root = first.get("pipelineSpec", first)["root"]
    root["dag"] = {"tasks": {node: root["dag"]["tasks"][node]}}
    root.pop("outputDefinitions", None)
    return yaml.safe_dump_all([first, *rest])
