"""Spans and dates in `data.path` on Kubeflow, which runs no ExampleGen driver."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tensorflow as tf
import yaml

from pipeline.cli.cli import main
from pipeline.common.errors import ConfigError
from pipeline.config.config_file import load_config
from pipeline.targets.compile import compile_pipeline

TAXI = Path(__file__).resolve().parents[3] / "examples" / "taxi" / "pipeline.yaml"


def compiled(target, path, *overrides):
    bucket = {"kubeflow": "s3://bucket", "vertex": "gs://bucket"}[target]
    settings = {"image": "registry.example/x:1", "pipeline_root": f"{bucket}/root"}
    settings["data_path"] = f"{bucket}/{path}"
    profile = [f"cluster.{target}.{key}={value}" for key, value in settings.items()]
    return compile_pipeline(load_config(TAXI, [*profile, *overrides]), target)


def example_gen_alone(text):
    """The compiled file with one of its tasks."""
    spec = next(iter(yaml.safe_load_all(text)))
    tasks = spec["root"]["dag"]["tasks"]
    spec["root"]["dag"]["tasks"] = {"ArrowExampleGen": tasks["ArrowExampleGen"]}
    spec["root"].pop("outputDefinitions", None)
    spec["root"]["dag"].pop("outputs", None)
    return spec


def write_span(folder, name, rows):
    (folder / name).mkdir(parents=True)
    lines = ["fare,tips", *(f"{row},1.0" for row in rows)]
    (folder / name / "rows.csv").write_text("\n".join(lines) + "\n")


def fares(split_folder):
    found = []
    for file in Path(split_folder).glob("Split-*/*.gz"):
        for record in tf.data.TFRecordDataset(str(file), "GZIP").as_numpy_iterator():
            example = tf.train.Example.FromString(record)
            found += example.features.feature["fare"].int64_list.value
    return sorted(found)


def test_each_run_on_kubeflow_reads_the_latest_days_that_are_there(tmp_path):
    """A replay of ExampleGen alone, and another one after a newer day has come."""
    data = tmp_path / "data"
    for day, rows in (("2024-02-28", [1, 2]), ("2024-02-29", [3, 4, 5]), ("2023-12-31", [9])):
        write_span(data, f"day={day}", rows)
    path = "data/day={YYYY}-{MM}-{DD}/*.csv"
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        json.dumps(example_gen_alone(compiled("kubeflow", path, "data.spans=2"))), encoding="utf-8"
    )
    root = tmp_path / "root"
    replay = ["replay", "--spec", str(spec), "--root", str(root)]
    read = []
    for newer in (None, "2024-03-01"):
        if newer:
            write_span(data, f"day={newer}", [7])
        assert main([*replay, "--map", f"s3://bucket/data={data}"]) == 0
        lines = (root / "chicago-taxi" / "artifacts.jsonl").read_text().splitlines()
        examples = json.loads(lines[-1])
        read.append((fares(examples["uri"]), examples["metadata"]["custom:span"]))
    assert read == [([1, 2, 3, 4, 5], 19782), ([3, 4, 5, 7], 19783)]


def test_vertex_keeps_tfxs_driver_but_for_a_window_which_it_refuses():
    for spans, has_driver in ((1, True), (2, False)):
        text = compiled("vertex", "data/{SPAN}/rows.csv", f"data.spans={spans}")
        spec = json.loads(text)["pipelineSpec"]
        container = spec["deploymentSpec"]["executors"]["ArrowExampleGen_executor"]["container"]
        assert ("lifecycle" in container) is has_driver
        options = spec["root"]["dag"]["tasks"]["ArrowExampleGen"]["cachingOptions"]
        assert options.get("enableCache", False) is has_driver


@pytest.mark.parametrize(
    ("path", "override", "message"),
    [
        ("data/{VERSION}/x.csv", "data.spans=1", r"^data.path=s3://.*add \{SPAN\} or a date"),
        ("data/x.csv", "data.spans=7", r"data.spans=7: data.path=s3:.* has no \{SPAN\}"),
    ],
)
def test_spans_that_cannot_be_resolved_are_refused_when_compiled(path, override, message):
    with pytest.raises(ConfigError, match=message):
        compiled("kubeflow", path, override)
