"""What TensorFlow leaves on Google Cloud Storage, and what Kubeflow's launcher makes of it."""

from __future__ import annotations

import json
import logging
import sys

import gcs_server
import pytest
import tensorflow as tf
from command_line import run_command
from launcher_download import download_as_launcher

from pipeline.targets.container_flags import INPUTS_SPEC, INVOCATION, OUTPUTS_SPEC
from pipeline.targets.directory_markers import directory_markers_removed

ROOT = "gs://bucket/root/run/Node"


@pytest.fixture
def gcs(tmp_path_factory, monkeypatch):
    """A fake Google Cloud Storage that this process and those it starts use."""
    with gcs_server.serving(tmp_path_factory.mktemp("gcs")) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


def writing(*uris):
    """The ExecutorInput of a node with these output artifacts."""
    artifacts = {f"output{i}": {"artifacts": [{"uri": uri}]} for i, uri in enumerate(uris)}
    return {"outputs": {"artifacts": artifacts, "outputFile": "/unused"}}


def download(gcs, uri, folder):
    """Downloads an artifact as the launcher does; returns its files by their paths."""
    objects = {name: each.content for (_, name), each in gcs.objects.items()}
    download_as_launcher(objects, uri.removeprefix("gs://bucket/"), folder)
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_what_tensorflow_wrote_can_be_downloaded_once_the_markers_are_removed(gcs, tmp_path):
    def write():
        tf.io.gfile.makedirs(f"{ROOT}/statistics/Split-train")
        with tf.io.gfile.GFile(f"{ROOT}/statistics/Split-train/stats.pb", "wb") as stream:
            stream.write(b"numbers")

    write()
    markers = [name for name in gcs.names("bucket", "root/run/Node/statistics/") if name[-1] == "/"]
    assert markers == ["root/run/Node/statistics/", "root/run/Node/statistics/Split-train/"]
    with pytest.raises(OSError, match=r"directory|exists"):
        download(gcs, f"{ROOT}/statistics", tmp_path / "before")

    with directory_markers_removed(writing(f"{ROOT}/statistics")):
        write()
    after = download(gcs, f"{ROOT}/statistics", tmp_path / "after")
    assert after == {"Split-train/stats.pb": b"numbers"}
    assert tf.io.gfile.isdir(f"{ROOT}/statistics/Split-train")


def test_nothing_but_markers_below_the_outputs_is_removed(gcs):
    gcs.page = 2
    kept = {
        "root/run/Node/model/BLESSED": b"",
        "root/run/Node/model/not-empty/": b"content",
        "root/run/Node/model/a/saved_model.pb": b"graph",
        "root/run/Node/model_run/": b"",
        "root/run/Node/": b"",
        "root/run/Other/": b"",
    }
    markers = ["model/", "model/a/", "model/a/assets/", "other/x/"]
    for name, content in kept.items():
        gcs.put("bucket", name, content)
    for name in markers:
        gcs.put("bucket", f"root/run/Node/{name}")
    with directory_markers_removed(writing(f"{ROOT}/model", f"{ROOT}/other/", "gs://bucket", "")):
        pass
    assert {name: each.content for (_, name), each in gcs.objects.items()} == kept
    assert len([r for r in gcs.requests if r.startswith("DELETE")]) == len(markers)


def test_they_are_removed_after_a_failure_and_the_failure_stays(gcs):
    gcs.put("bucket", "root/run/Node/model/")
    with pytest.raises(ZeroDivisionError), directory_markers_removed(writing(f"{ROOT}/model")):
        raise ZeroDivisionError
    assert not gcs.objects


@pytest.mark.parametrize("lacking", ["GET /storage/v1/b/bucket/o", "DELETE", "POST /token"])
def test_a_node_does_not_fail_because_they_cannot_be_removed(gcs, caplog, lacking):
    gcs.failures[lacking] = 403
    gcs.put("bucket", "root/run/Node/model/")
    with caplog.at_level(logging.WARNING), directory_markers_removed(writing(f"{ROOT}/model")):
        pass
    assert list(gcs.objects) == [("bucket", "root/run/Node/model/")]
    (message,) = [r.getMessage() for r in caplog.records if "directory_markers" in r.name]
    assert f"{ROOT}/model" in message
    assert "403" in message
    assert "storage.objects.delete" in message


def test_without_credentials_a_warning_says_so(gcs, caplog, monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/missing.json")
    with caplog.at_level(logging.WARNING), directory_markers_removed(writing(f"{ROOT}/model")):
        pass
    assert "/missing.json" in caplog.text


def test_outputs_of_other_schemes_are_left_alone(gcs, tmp_path):
    (tmp_path / "model").mkdir()
    with directory_markers_removed(writing("s3://bucket/model", str(tmp_path / "model"), "/gcs/b")):
        pass
    assert gcs.requests == []
    assert (tmp_path / "model").is_dir()


@pytest.mark.slow(seconds=15)
def test_the_entry_point_of_a_node_leaves_none(gcs, tmp_path):
    gcs.put("bucket", "schema.pbtxt", b'feature { name: "fare" type: FLOAT }')
    kind = {"schemaTitle": "tfx.Schema"}
    invocation = {
        "inputs": {"parameterValues": {"schema_file": "gs://bucket/schema.pbtxt"}},
        "outputs": {
            "artifacts": {"schema": {"artifacts": [{"uri": f"{ROOT}/schema", "type": kind}]}},
            "outputFile": str(tmp_path / "executor_output.json"),
        },
    }
    code, printed = run_command(
        *(sys.executable, "-m", "pipeline.targets.entry_point", "--executor_class_path"),
        "tfx.components.schema_gen.import_schema_gen.executor.Executor",
        *(INVOCATION, json.dumps(invocation)),
        *(INPUTS_SPEC, json.dumps({"parameters": {"schema_file": {"parameterType": "STRING"}}})),
        *(OUTPUTS_SPEC, json.dumps({"artifacts": {"schema": {"artifactType": kind}}})),
    )
    assert code == 0, printed
    assert any("uploadType=media" in r and "schema%2F&" in r for r in gcs.requests)
    assert gcs.names("bucket", "root/run/Node/schema") == ["root/run/Node/schema/schema.pbtxt"]
