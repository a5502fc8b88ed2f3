"""`replay --map`: which remote folders a compiled pipeline reads, and what a wrong one gives."""

from __future__ import annotations

import json

import pytest
from compiled_taxi import FILES, compiled

from pipeline.cli.cli import main
from pipeline.replay.remote_places import _folders_read, map_options, read_maps
from pipeline.targets.compiled_spec import CompiledSpec
from pipeline.targets.long_values import _compress, expand


def spec_reading(*paths):
    """A compiled pipeline with a parameter for each path."""
    parameters = {str(i): {"runtimeValue": {"constant": path}} for i, path in enumerate(paths)}
    return CompiledSpec("kubeflow", {"root": parameters}, "s3://bucket/root", {}, {})


def replay(folder, *options, spec=FILES["kubeflow"]):
    root = folder / "root"
    code = main(["replay", "--spec", str(spec), "--root", str(root), *map(str, options)])
    assert not root.exists(), "a node was started"
    return code


@pytest.mark.parametrize(
    ("paths", "folders"),
    [
        (["s3://bucket/data/data.csv"], ["s3://bucket/data"]),
        (["s3://bucket/data/*.csv"], ["s3://bucket/data"]),
        (["s3://bucket/data/year=*/x.parquet"], ["s3://bucket/data"]),
        (["s3://bucket/data/{SPAN}/x.csv"], ["s3://bucket/data"]),
        (["s3://bucket/data", "s3://bucket/data/"], ["s3://bucket/data"]),
        (["s3://bucket/data.v1/"], ["s3://bucket/data.v1"]),
        (["s3://bucket/data.csv"], ["s3://bucket"]),
        (["gs://b/data", "gs://b/data/schema.pbtxt", "gs://a/x"], ["gs://a/x", "gs://b/data"]),
        (["s3://bucket/root", "s3://bucket/root/taxi/blessed"], []),
        (["s3://bucket/root2/x.csv"], ["s3://bucket/root2"]),
        (["/tmp/x.csv"], []),
    ],
)
def test_folders_that_a_pipeline_reads(paths, folders):
    assert _folders_read(spec_reading(*paths)) == folders


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ("data_path=s3://bucket/data/part-*.csv", "--map s3://bucket/data=FOLDER"),
        ("schema_path=s3://bucket/schema.pbtxt", "--map s3://bucket=FOLDER"),
        ("eval_path=s3://bucket/other/b.csv", "--map s3://bucket=FOLDER"),
        (
            "schema_path=s3://schemas/v1/a.pbtxt",
            "--map s3://bucket/data=FOLDER --map s3://schemas/v1=FOLDER",
        ),
    ],
)
def test_compiled_files_name_the_folders_to_map(given, options, tmp_path):
    path = tmp_path / "taxi.yaml"
    path.write_text(compiled("kubeflow", f".{given}"))
    assert map_options(CompiledSpec.read(path)) == options


def test_a_missing_folder_ends_the_command_before_any_node(tmp_path, capsys):
    assert replay(tmp_path, "--map", f"s3://bucket/data={tmp_path}/rides") == 2
    message = capsys.readouterr().err
    assert f"{tmp_path}/rides does not exist" in message
    assert "s3://bucket/data" in message
    (tmp_path / "rides").write_text("a file")
    assert replay(tmp_path, "--map", f"s3://bucket/data={tmp_path}/rides") == 2
    assert "is not a folder" in capsys.readouterr().err


@pytest.mark.parametrize("target", FILES)
@pytest.mark.parametrize("prefix", ["{}://bucket/dat", "{}://bucket/data2", "{}://other"])
def test_a_prefix_that_is_not_read_is_an_error_with_those_that_are(
    target, prefix, tmp_path, capsys
):
    scheme = {"kubeflow": "s3", "vertex": "gs"}[target]
    prefix = prefix.format(scheme)
    assert replay(tmp_path, "--map", f"{prefix}={tmp_path}", spec=FILES[target]) == 2
    message = capsys.readouterr().err
    assert f"reads nothing below {prefix}." in message
    assert f"--map {scheme}://bucket/data=FOLDER" in message


def test_a_place_that_is_not_mapped_is_an_error_with_its_folder(tmp_path, capsys):
    assert replay(tmp_path) == 2
    message = capsys.readouterr().err
    assert "reads s3://bucket/data," in message
    assert "--map s3://bucket/data=FOLDER" in message


def test_values_of_the_pipelines_own_parameters_are_mapped_too(tmp_path, capsys):
    job = json.loads(FILES["vertex"].read_text())
    job["runtimeConfig"]["parameterValues"] = {"more": "gs://other/rows/x.csv"}
    file = tmp_path / "job.json"
    file.write_text(json.dumps(job))
    compiled = CompiledSpec.read(file)
    assert _folders_read(compiled) == ["gs://bucket/data", "gs://other/rows"]
    assert compiled.renamed({"gs://other/rows": "/local"}).parameters == {"more": "/local/x.csv"}
    assert replay(tmp_path, "--map", f"gs://bucket/data={tmp_path}", spec=file) == 2
    assert "--map gs://other/rows=FOLDER" in capsys.readouterr().err


def test_a_prefix_is_replaced_in_whole_names_only():
    spec = spec_reading("s3://bucket/data/x.csv", "s3://bucket/data2/x.csv", "s3://bucket/data")
    changed = spec.renamed({"s3://bucket/data": "/local"})
    values = [each["runtimeValue"]["constant"] for each in changed.spec["root"].values()]
    assert values == ["/local/x.csv", "s3://bucket/data2/x.csv", "/local"]


def test_places_in_a_compressed_setting_are_found_and_mapped(tmp_path):
    setting = json.dumps({"vocabulary": "s3://bucket/words/all.txt", "columns": ["c"] * 2000})
    compiled = spec_reading(_compress(setting))
    assert _folders_read(compiled) == ["s3://bucket/words"]
    places = read_maps(compiled, [f"s3://bucket/words={tmp_path}"])
    constant = compiled.renamed(places).spec["root"]["0"]["runtimeValue"]["constant"]
    assert len(constant) < 1000
    assert json.loads(expand(constant))["vocabulary"] == f"{tmp_path}/all.txt"
