"""`replay --map`: which remote folders a compiled pipeline reads, and what a wrong one gives."""

from __future__ import annotations

import json

from compiled_taxi import FILES

from pipeline.cli.cli import main
from pipeline.replay.replay_command import _read_maps, map_options
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


def test_folders_that_a_pipeline_reads():
    for paths, folders in (
        (["s3://bucket/data/data.csv"], ["s3://bucket/data"]),
        (["s3://bucket/data/{SPAN}/x.csv"], ["s3://bucket/data"]),
        (["s3://bucket/data.v1/"], ["s3://bucket/data.v1"]),
        (["gs://b/data", "gs://b/data/schema.pbtxt", "gs://a/x"], ["gs://a/x", "gs://b/data"]),
        (["s3://bucket/root", "s3://bucket/root/taxi/blessed"], []),
        (["s3://bucket/root2/x.csv"], ["s3://bucket/root2"]),
    ):
        options = " ".join(f"--map {folder}=FOLDER" for folder in folders)
        assert map_options(spec_reading(*paths)) == options
    # What a description says is not read, and places may have any letter.
    spec = spec_reading("s3://b/é/x")
    spec.spec["inputDefinitions"] = {"description": "such as gs://bucket/path"}
    assert map_options(spec) == "--map s3://b/é/x=FOLDER"

    options = "--map s3://bucket/data=FOLDER --map s3://schemas/v1=FOLDER"
    assert map_options(spec_reading("s3://bucket/data/x.csv", "s3://schemas/v1/a.pbtxt")) == options


def test_wrong_folders_end_the_command_before_any_node(tmp_path, capsys):
    data, file = "s3://bucket/data", tmp_path / "file"
    file.write_text("")
    (tmp_path / "a*b").mkdir()
    for options, words in (
        ([], f"reads {data},"),
        ([f"{data}={tmp_path}/rides"], f"{tmp_path}/rides does not exist"),
        ([f"{data}={file}"], "is not a folder"),
        ([f"{data}={tmp_path}/a*b"], "'*', which the values in a compiled"),
        ([f"s3://bucket/dat={tmp_path}"], "reads nothing below s3://bucket/dat."),
    ):
        maps = [each for option in options for each in ("--map", option)]
        assert replay(tmp_path, *maps) == 2
        assert words in capsys.readouterr().err


def test_values_of_the_pipelines_own_parameters_are_mapped_too(tmp_path, capsys):
    job = json.loads(FILES["vertex"].read_text())
    job["runtimeConfig"]["parameterValues"] = {"more": "gs://other/rows/x.csv"}
    file = tmp_path / "job.json"
    file.write_text(json.dumps(job))
    compiled = CompiledSpec.read(file)
    assert map_options(compiled) == "--map gs://bucket/data=FOLDER --map gs://other/rows=FOLDER"
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
    assert map_options(compiled) == "--map s3://bucket/words=FOLDER"
    places = _read_maps(compiled, [f"s3://bucket/words={tmp_path}"])
    constant = compiled.renamed(places).spec["root"]["0"]["runtimeValue"]["constant"]
    assert len(constant) < 1000
    assert json.loads(expand(constant))["vocabulary"] == f"{tmp_path}/all.txt"
