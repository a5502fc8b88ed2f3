"""The program of each container: what TFX gets, and what remains of it on Google Cloud Storage."""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import sys
from functools import partial
from types import SimpleNamespace

import pytest
from absl import flags
from google.api_core.exceptions import Forbidden, NotFound
from google.cloud import storage

from pipeline.targets import entry_point
from pipeline.targets.entry_point import _Invocation, _remove_directory_markers
from pipeline.targets.executor_input import INVOCATION, output_names, restore_names

ROOT = "gs://bucket/root/run/Node"


class Bucket:
    """What `storage.Client` lists: the objects of one bucket, by their names."""

    def __init__(self):
        self.objects, self.listed, self.failures = {}, [], {}

    def list_blobs(self, bucket, *, prefix, **limits):
        self.listed.append(prefix)
        self._fail("list")
        return [
            SimpleNamespace(
                name=name, size=len(content), generation=7, delete=partial(self.delete, name)
            )
            for name, content in self.objects.items()
            if name.startswith(prefix)
        ]

    def delete(self, name, *, if_generation_match, **limits):
        assert if_generation_match == 7
        self._fail("delete")
        del self.objects[name]

    def _fail(self, method):
        if method in self.failures:
            raise self.failures[method]


@pytest.fixture
def client(monkeypatch):
    bucket = Bucket()
    monkeypatch.setattr(storage, "Client", lambda: bucket)
    return bucket


def writing(*uris):
    """The ExecutorInput of a node with these output artifacts."""
    artifacts = {f"output{i}": {"artifacts": [{"uri": uri}]} for i, uri in enumerate(uris)}
    return {"outputs": {"artifacts": artifacts, "outputFile": "/unused"}}


def test_nothing_but_markers_below_the_outputs_is_removed(client):
    kept = {
        "root/run/Node/model/BLESSED": b"",
        "root/run/Node/model/not-empty/": b"content",
        "root/run/Node/model/a/saved_model.pb": b"graph",
        "root/run/Node/model_run/": b"",
        "root/run/Node/": b"",
        "root/run/Other/": b"",
    }
    markers = ["model/", "model/a/", "model/a/assets/", "other/x/"]
    client.objects = kept | {f"root/run/Node/{name}": b"" for name in markers}
    places = (f"{ROOT}/model", f"{ROOT}/other/", "gs://bucket", "", "s3://bucket/x", "/gcs/b")
    _remove_directory_markers(writing(*places))
    assert client.objects == kept
    assert client.listed == ["root/run/Node/model/", "root/run/Node/other/"]


def test_a_node_does_not_fail_because_they_cannot_be_removed(client, caplog):
    """That another worker has removed one is no failure at all."""
    client.objects = {"root/run/Node/model/": b""}
    for failures, facts in (
        ({"delete": NotFound("gone")}, []),
        ({"list": Forbidden("is denied")}, [f"{ROOT}/model", "403 is denied", "objects.delete"]),
    ):
        caplog.clear()
        client.failures = failures
        with caplog.at_level(logging.WARNING):
            _remove_directory_markers(writing(f"{ROOT}/model"))
        messages = [r.getMessage() for r in caplog.records if "entry_point" in r.name]
        assert len(messages) == bool(facts)
        assert all(fact in messages[0] for fact in facts)


@pytest.mark.parametrize("fails", [False, True])
def test_they_are_removed_when_the_node_has_ended_and_a_failure_stays(client, monkeypatch, fails):
    def run(_):
        client.objects["root/run/Node/model/"] = b""
        if fails:
            raise ZeroDivisionError

    program = SimpleNamespace(main=run, _parse_flags=lambda argv: flags.FLAGS(argv[:1]))
    monkeypatch.setitem(sys.modules, entry_point._EXECUTOR_PROGRAM, program)
    monkeypatch.setattr(entry_point, "register_file_systems", lambda text: None)
    monkeypatch.setattr(entry_point, "missing_buckets", lambda text: "")
    before = signal.getsignal(signal.SIGTERM)
    arguments = ["node", INVOCATION, json.dumps(writing(f"{ROOT}/model"))]
    try:
        with pytest.raises(ZeroDivisionError) if fails else contextlib.nullcontext():
            assert not entry_point.exit_code(arguments)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert client.listed == ["root/run/Node/model/"]
    assert not client.objects


@pytest.mark.parametrize("missing", ["", "s3://absent: this bucket does not exist."])
def test_a_node_that_fails_names_the_buckets_that_do_not_exist(monkeypatch, missing):
    def fails(argv):
        raise ValueError("s3://absent/x matches no file")

    monkeypatch.setattr(entry_point, "main", fails)
    monkeypatch.setattr(entry_point, "missing_buckets", lambda text: missing)
    with pytest.raises((ValueError, RuntimeError), match="matches no file") as caught:
        entry_point.exit_code(["s3://absent/x"])
    assert ("s3://absent: " in str(caught.value)) == bool(missing)


MODEL = {"instanceSchema": "title: tfx.Model\ntype: object\n"}
UNTYPED = {"instanceSchema": ""}
OWN = {"artifacts": [{"uri": "u", "name": "n", "type": {"instanceSchema": "title: tfx.Schema"}}]}


def arguments(executor_input, *, inputs=None, outputs=None):
    """A container's arguments, as the compiler writes them."""
    given = ["--executor_class_path", "x.Y", "--json_serialized_invocation_args"]
    given += [json.dumps(executor_input), "--runner=FnApiRunner"]
    for flag, spec in (("inputs", inputs), ("outputs", outputs)):
        if spec is not None:
            given += [f"--json_serialized_{flag}_spec_args", json.dumps(spec)]
    return given


def artifacts(**types):
    return {key: {"artifacts": [{"uri": f"s3://b/{key}", "type": t}]} for key, t in types.items()}


def declared(**types):
    return {"artifacts": {key: {"artifactType": kind} for key, kind in types.items()}}


def test_tfx_gets_the_declared_artifacts_with_types_and_names():
    """Kubeflow drops the types, TFX's Evaluator looks the names up, and 2.5 adds executor-logs."""
    given = {
        "inputs": {"artifacts": {**artifacts(model=UNTYPED, extra=UNTYPED), "own": OWN}},
        "outputs": {
            "artifacts": artifacts(
                run=MODEL, **{"executor-logs": {"schemaTitle": "system.Artifact"}}
            ),
            "outputFile": "/x",
        },
    }
    found = _Invocation.read(
        arguments(given, inputs=declared(model=MODEL, own=MODEL), outputs=declared(run=MODEL))
    )
    assert "--json_serialized_outputs_spec_args" not in found.arguments
    assert "--runner=FnApiRunner" in found.for_tfx()
    reported = json.loads(found.for_tfx()[-1])
    assert reported["inputs"]["artifacts"] == {
        "model": {"artifacts": [{"uri": "s3://b/model", "type": MODEL, "name": "s3://b/model"}]},
        "own": OWN,
    }
    assert list(reported["outputs"]["artifacts"]) == ["run"]
    assert reported["outputs"]["outputFile"] == "/x"


def test_an_unknown_type_becomes_the_base_artifact_of_tfx():
    from google.protobuf import json_format
    from kfp.pipeline_spec import pipeline_spec_pb2
    from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_entrypoint_utils as utils

    for kind in (UNTYPED, {"schemaTitle": "system.Dataset"}, {"schemaTitle": "no_such.Type"}):
        given = {"inputs": {"artifacts": artifacts(data=kind)}, "outputs": {}}
        inputs = {"artifacts": {"data": {"artifactType": kind}}}
        found = _Invocation.read(arguments(given, inputs=inputs)).executor_input
        parsed = json_format.ParseDict(found, pipeline_spec_pb2.ExecutorInput())
        (artifact,) = utils.parse_raw_artifact_dict(parsed.inputs.artifacts, {})["data"]
        assert artifact.uri == "s3://b/data"
        assert artifact.type_name == "Artifact", kind


def test_outputs_whose_names_begin_with_another_are_renamed():
    """That they are named back: test_tfjob.py."""
    names = output_names(["model", "model_run", "model_run_logs"])
    assert names["model_run"] == "output_model_run"
    found = list(names.values())
    assert not [a for a in found for b in found if a != b and a.startswith(b)]
    made = {"artifacts": {name: {} for name in names}}
    assert list(restore_names(made, found)["artifacts"]) == found
