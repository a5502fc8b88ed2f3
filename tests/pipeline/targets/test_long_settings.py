"""Thousands of columns named one by one: what is compiled can be started, or is refused."""

from __future__ import annotations

import json
import random

import pytest
import yaml

from pipeline.common.errors import ConfigError
from pipeline.config.config_file import load_config
from pipeline.targets.argument_length import LONGEST_ARGUMENT
from pipeline.targets.compile import compile_pipeline
from pipeline.targets.long_values import expand

BUCKETS = {"kubeflow": "s3://bucket", "vertex": "gs://bucket"}


def config(folder, target, groups):
    """A pipeline of Parquet data with groups of columns."""
    path = folder / "wide.yaml"
    values = {
        "name": "wide",
        "data": {"source": "parquet", "path": f"{BUCKETS[target]}/data/data.parquet"},
        "features": {
            "label": {"column": "label", "kind": "binary"},
            "groups": [
                {"name": f"group{n}", "columns": columns, "scale": "z_score"}
                for n, columns in enumerate(groups)
            ],
        },
        "training": {"global_batch_size": 16, "epochs": 1},
        "evaluation": {"thresholds": {"auc": {"lower_bound": 0.0}}},
        "output": {"folder": "output"},
        "cluster": {
            target: {"image": "registry.example/x:1", "pipeline_root": f"{BUCKETS[target]}/root"}
        },
    }
    path.write_text(json.dumps(values))  # JSON is YAML, and is read in a tenth of the time
    return load_config(path, [])


@pytest.mark.parametrize("target", BUCKETS)
@pytest.mark.parametrize(
    "groups",
    [
        [[f"sensor_{n:05d}" for n in range(20_000)]],
        [[f"sensor_{n:05d}"] for n in range(700)],
    ],
    ids=["20,000 columns in one group", "700 groups"],
)
def test_many_columns_fit_the_arguments_of_a_process(tmp_path, target, groups):
    text = compile_pipeline(config(tmp_path, target, groups), target)
    first = next(iter(yaml.safe_load_all(text)))
    spec = first.get("pipelineSpec", first)
    task = spec["root"]["dag"]["tasks"]["Transform"]
    assert len(json.dumps(task)) < LONGEST_ARGUMENT
    packed = task["inputs"]["parameters"]["custom_config"]["runtimeValue"]["constant"]
    features = json.loads(expand(packed))["features"]
    assert [group["columns"] for group in features["groups"]] == groups


@pytest.mark.parametrize("target", BUCKETS)
def test_settings_that_stay_too_long_are_refused_with_their_size(tmp_path, target):
    """Names without a pattern compress to half."""
    draw = random.Random(0)
    columns = [f"c{draw.getrandbits(64):016x}" for _ in range(20_000)]
    with pytest.raises(ConfigError, match=r"Transform: its settings have \d+ KiB .*custom_config"):
        compile_pipeline(config(tmp_path, target, [columns]), target)
