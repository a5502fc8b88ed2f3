"""`submit` of the golden files, which are compiled already, so that TFX is not imported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from compiled_taxi import BUCKETS, FILES, TAXI, documents_of

from pipeline.cli.cli import main

API = "/apis/v2beta1"
PLACE = "projects/my-project/locations/europe-west4"


def submit(platform: str, *arguments: object, spec: Path | None = None) -> int:
    """Submit a compiled file, and return the exit code."""
    file = spec or FILES[platform]
    return main(["submit", "--spec", str(file), "--poll", "0.01", *map(str, arguments)])


def declaring(folder: Path, platform: str, **kinds: str) -> Path:
    """Write the compiled file with parameters of these types, and return its path."""
    job, *rest = documents_of(FILES[platform].read_text())
    parameters = {name: {"parameterType": k, "isOptional": True} for name, k in kinds.items()}
    job.get("pipelineSpec", job)["root"]["inputDefinitions"] = {"parameters": parameters}
    file = folder / "with-parameters.yaml"
    file.write_text("---\n".join(json.dumps(each) + "\n" for each in (job, *rest)))
    return file


def user_yaml(folder: Path, target: str, **fields: Any) -> Path:
    """Write a YAML with a profile; with --spec, its other sections are not used."""
    config = yaml.safe_load(TAXI.read_text())
    place = {"image": "registry.example/x:1", "pipeline_root": f"{BUCKETS[target]}/root"}
    config["cluster"] = {target: {**place, **fields}}
    file = folder / "my.yaml"
    file.write_text(yaml.safe_dump(config))
    return file
