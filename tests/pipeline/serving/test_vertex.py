"""`serve-manifest --target vertex`: the request that uploads a model."""

from __future__ import annotations

import base64
import json

import pytest
from google.cloud import aiplatform_v1
from google.protobuf import json_format
from served_model import ROWS

pytestmark = pytest.mark.slow

IMAGE = "europe-docker.pkg.dev/mine/images/serving:2.16.1"
FOLDER = "gs://bucket/taxi/serving_model"


@pytest.fixture
def manifest(write_manifest):
    """`serve-manifest` as a function of the image and more arguments."""

    def write(*arguments, image=IMAGE, place=FOLDER, code=0):
        settings = {"image": "registry/x:1", "pipeline_root": "gs://bucket/root"}
        settings |= {"server.image": image} if image else {}
        given = [f"--set=cluster.vertex.{name}={value}" for name, value in settings.items()]
        return write_manifest("vertex", place, FOLDER, *given, *arguments, code=code)

    return write


@pytest.mark.parametrize("place", [FOLDER, f"{FOLDER}/12"])
def test_the_server_gets_the_folder_of_versions(manifest, place):
    request = manifest("--set=cluster.vertex.labels.team=taxi", "--set=name=taxi", place=place)
    model = request["model"]
    assert (model["displayName"], model["artifactUri"]) == ("taxi", FOLDER)
    assert model["labels"] == {"team": "taxi"}
    container = model["containerSpec"]
    assert container["imageUri"] == IMAGE
    assert container["command"] == ["/usr/bin/tensorflow_model_server"]
    assert "--model_base_path=$(AIP_STORAGE_URI)" in container["args"]
    assert container["ports"] == [{"containerPort": 8501}]
    assert container["predictRoute"] == "/v1/models/model:predict"
    assert container["healthRoute"] == "/v1/models/model"
    kind = aiplatform_v1.UploadModelRequest  # Google's client knows every field
    json_format.ParseDict(request, kind.pb(kind()))


def test_the_request_holds_examples_for_the_default_signature(manifest, tmp_path):
    (tmp_path / "rows.csv").write_text(ROWS, encoding="utf-8")
    manifest("--rows", str(tmp_path / "rows.csv"))
    body = json.loads((tmp_path / "serving-request.json").read_text())
    assert list(body) == ["instances"]
    assert [list(row) for row in body["instances"]] == [["b64"]] * 3
    assert b"Oslo" in base64.b64decode(body["instances"][0]["b64"])


def test_what_vertex_cannot_serve_is_refused(manifest, capsys):
    for options, reason in (
        ({"image": None}, "cluster.vertex.server.image is missing: TensorFlow 2."),
        ({"place": "s3://bucket/m"}, "vertex reads models from gs://"),
        ({"place": f"{FOLDER}/9"}, "which is 12, not 9"),
    ):
        manifest(**options, code=2)
        assert reason in capsys.readouterr().err
