"""The empty objects that TensorFlow leaves on Google Cloud Storage for folders are removed."""

from __future__ import annotations

import json
import logging
import signal
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from absl import flags
from google.api_core.exceptions import Forbidden, NotFound
from google.cloud import storage

from pipeline.targets import entry_point
from pipeline.targets.directory_markers import directory_markers_removed
from pipeline.targets.spec_types import INVOCATION

ROOT = "gs://bucket/root/run/Node"


@dataclass
class Blob:
    """An object of the fake bucket."""

    objects: dict[str, bytes]
    name: str
    generation: int = 7

    @property
    def size(self):
        return len(self.objects[self.name])

    def delete(self, *, if_generation_match, retry, timeout):
        assert if_generation_match == self.generation
        assert timeout == 30.0
        del self.objects[self.name]


@dataclass
class Client:
    """What `storage.Client` lists: the objects of one bucket, by their names."""

    objects: dict[str, bytes] = field(default_factory=dict)
    failure: Exception | None = None
    listed: list[str] = field(default_factory=list)

    def list_blobs(self, bucket, *, prefix, fields, retry, timeout):
        self.listed.append(prefix)
        assert bucket == "bucket"
        if self.failure:
            raise self.failure
        return [Blob(self.objects, name) for name in list(self.objects) if name.startswith(prefix)]


@pytest.fixture
def client(monkeypatch):
    made = Client()
    monkeypatch.setattr(storage, "Client", lambda: made)
    return made


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
    with directory_markers_removed(writing(f"{ROOT}/model", f"{ROOT}/other/", "gs://bucket", "")):
        pass
    assert client.objects == kept


def test_they_are_removed_after_a_failure_and_the_failure_stays(client):
    client.objects = {"root/run/Node/model/": b""}
    with pytest.raises(ZeroDivisionError), directory_markers_removed(writing(f"{ROOT}/model")):
        raise ZeroDivisionError
    assert not client.objects


def test_a_node_does_not_fail_because_they_cannot_be_removed(client, caplog):
    client.failure = Forbidden("storage.objects.list is denied")
    with caplog.at_level(logging.WARNING), directory_markers_removed(writing(f"{ROOT}/model")):
        pass
    (message,) = [r.getMessage() for r in caplog.records if "directory_markers" in r.name]
    assert f"{ROOT}/model" in message
    assert "403 storage.objects.list is denied" in message
    assert "storage.objects.delete" in message


def test_another_worker_may_have_removed_a_marker(client, caplog, monkeypatch):
    def gone(self, **options):
        raise NotFound("gone")

    monkeypatch.setattr(Blob, "delete", gone)
    client.objects = {"root/run/Node/model/": b""}
    with caplog.at_level(logging.WARNING), directory_markers_removed(writing(f"{ROOT}/model")):
        pass
    assert not caplog.records


def test_without_credentials_a_warning_says_so(caplog, monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/missing.json")
    with caplog.at_level(logging.WARNING), directory_markers_removed(writing(f"{ROOT}/model")):
        pass
    assert "/missing.json" in caplog.text


def test_outputs_of_other_schemes_are_left_alone(client):
    with directory_markers_removed(writing("s3://bucket/model", "/tmp/model", "/gcs/b")):
        pass
    assert client.listed == []


def test_the_entry_point_removes_them_when_the_node_has_ended(client, monkeypatch):
    def run(_):
        client.objects["root/run/Node/model/"] = b""

    program = SimpleNamespace(main=run, _parse_flags=lambda argv: flags.FLAGS(argv[:1]))
    monkeypatch.setitem(sys.modules, entry_point._EXECUTOR_PROGRAM, program)
    monkeypatch.setattr(entry_point, "register_file_systems", lambda text: None)
    before = signal.getsignal(signal.SIGTERM)
    try:
        given = json.dumps(writing(f"{ROOT}/model"))
        assert not entry_point.exit_code(["node", INVOCATION, given])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert client.listed == ["root/run/Node/model/"]
    assert not client.objects
