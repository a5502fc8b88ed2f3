"""`serve-manifest --target vertex`: the requests, and what Google's installed client sends."""

from __future__ import annotations

import base64
import json

import pytest
from command_line import TAXI
from google.cloud import aiplatform_v1
from google.protobuf import json_format
from google_account import client_environment
from loopback import Answer
from served_model import ROWS
from vertex_models import VertexModels

from pipeline.cli.cli import main
from pipeline.serving import vertex_deploy
from pipeline.serving.vertex_deploy import Waiting

pytestmark = pytest.mark.slow

IMAGE = "europe-docker.pkg.dev/mine/images/serving:2.16.1"
PREBUILT = "us-docker.pkg.dev/vertex-ai/prediction/tf2-cpu.2-15:latest"
PLACE = "projects/my-project/locations/europe-west4"
FOLDER = "gs://bucket/taxi/serving_model"


@pytest.fixture
def manifest(model, tmp_path):
    """`serve-manifest` as a function of the image and more arguments."""

    def write(*arguments, image=IMAGE, place=FOLDER, code=0):
        file = tmp_path / "serving.json"
        settings = {"image": "registry/x:1", "pipeline_root": "gs://bucket/root"}
        settings |= {"server.image": image} if image else {}
        found = main(
            [
                *("serve-manifest", "--target", "vertex", "--config", str(TAXI)),
                *("--model", place, "--map", f"{FOLDER}={model}", "--output", str(file)),
                *(f"--set=cluster.vertex.{name}={value}" for name, value in settings.items()),
                *arguments,
            ]
        )
        assert found == code
        return json.loads(file.read_text()) if code == 0 else None

    return write


@pytest.fixture
def vertex(monkeypatch, service_account_key):
    """A server that the environment names, and credentials that it knows."""
    for name in ("GOOGLE_CLOUD_PROJECT", "CLOUD_ML_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GOOGLE_CLOUD_REGION", "europe-west4")
    monkeypatch.setattr(vertex_deploy, "Waiting", lambda: Waiting(poll=0.01))
    server = VertexModels()
    with server.serving():
        for name, value in client_environment(service_account_key, server.url).items():
            monkeypatch.setenv(name, value)
        yield server


def test_a_server_of_tensorflow_serving_gets_the_folder_of_versions(manifest):
    requests = manifest("--set=cluster.vertex.service_account=runner@mine", "--name", "taxi")
    model = requests["uploadModel"]["model"]
    assert model["artifactUri"] == FOLDER
    container = model["containerSpec"]
    assert container["imageUri"] == IMAGE
    assert container["command"] == ["/usr/bin/tensorflow_model_server"]
    assert "--model_base_path=$(AIP_STORAGE_URI)" in container["args"]
    assert container["ports"] == [{"containerPort": 8501}]
    assert container["predictRoute"] == "/v1/models/model:predict"
    assert container["healthRoute"] == "/v1/models/model"
    assert requests["createEndpoint"] == {"displayName": "taxi"}
    deployed = requests["deployModel"]["deployedModel"]
    assert deployed["serviceAccount"] == "runner@mine"
    assert deployed["dedicatedResources"]["machineSpec"] == {"machineType": "n1-standard-2"}


def test_a_prebuilt_container_gets_the_version_itself(manifest):
    container = {"imageUri": PREBUILT}
    for place in (FOLDER, f"{FOLDER}/12"):
        model = manifest(image=PREBUILT, place=place)["uploadModel"]["model"]
        assert model["artifactUri"] == f"{FOLDER}/12"
        assert model["containerSpec"] == container


def test_machines_and_replicas_are_those_of_the_profile(manifest):
    requests = manifest(
        "--set=cluster.vertex.server.accelerator=NVIDIA_TESLA_T4",
        "--set=cluster.vertex.server.max_replicas=3",
        "--set=cluster.vertex.labels.team=taxi",
    )
    dedicated = requests["deployModel"]["deployedModel"]["dedicatedResources"]
    assert dedicated["machineSpec"]["acceleratorType"] == "NVIDIA_TESLA_T4"
    assert (dedicated["minReplicaCount"], dedicated["maxReplicaCount"]) == (1, 3)
    assert requests["createEndpoint"]["labels"] == {"team": "taxi"}


def test_googles_client_knows_every_field(manifest):
    requests = manifest("--set=cluster.vertex.server.accelerator=NVIDIA_TESLA_T4")
    kinds = {
        "uploadModel": aiplatform_v1.UploadModelRequest,
        "createEndpoint": aiplatform_v1.Endpoint,
        "deployModel": aiplatform_v1.DeployModelRequest,
    }
    assert list(requests) == list(kinds)
    for name, kind in kinds.items():
        json_format.ParseDict(requests[name], kind.pb(kind()))


def test_the_request_holds_examples_for_the_default_signature(manifest, tmp_path):
    (tmp_path / "rows.csv").write_text(ROWS, encoding="utf-8")
    manifest("--rows", str(tmp_path / "rows.csv"))
    body = json.loads((tmp_path / "serving-request.json").read_text())
    assert list(body) == ["instances"]
    assert [list(row) for row in body["instances"]] == [["b64"]] * 3
    assert b"Oslo" in base64.b64decode(body["instances"][0]["b64"])


@pytest.mark.parametrize(
    ("arguments", "options", "reason"),
    [
        ((), {"image": None}, "cluster.vertex.server.image: TensorFlow 2."),
        ((), {"place": "s3://bucket/m"}, "vertex reads models from gs://"),
        (("--name", ""), {}, "--name=: Vertex takes 1 to 128 characters"),
        (("--rows", "x.csv", "--signature", "raw"), {}, "leave --signature out"),
        ((), {"place": f"{FOLDER}/9"}, "which is 12, not 9"),
        (("--set=cluster.vertex.server.min_replicas=2",), {}, "is more than max_replicas=1"),
        (("--set=cluster.vertex.server.min_replicas=0",), {}, "min_replicas"),
    ],
)
def test_what_vertex_cannot_serve_is_refused(manifest, capsys, arguments, options, reason):
    manifest(*arguments, **options, code=2)
    assert reason in capsys.readouterr().err


def test_deploy_uploads_creates_an_endpoint_and_sends_it_all_traffic(manifest, vertex, capsys):
    manifest("--deploy")
    ((name, upload),) = vertex.models.items()
    assert name == f"{PLACE}/models/100@1"
    assert upload.model.artifact_uri == FOLDER
    assert upload.model.container_spec.image_uri == IMAGE
    ((endpoint_name, endpoint),) = vertex.endpoints.items()
    (deployed,) = endpoint.deployed_models
    assert deployed.model == name
    assert dict(endpoint.traffic_split) == {deployed.id: 100}
    assert set(vertex.polls.values()) == {2}
    printed = capsys.readouterr().out
    assert f"Uploaded: {name}" in printed
    assert f"Deployed to {endpoint_name}" in printed


def test_a_second_deploy_adds_a_version_to_the_model_and_keeps_the_endpoint(
    manifest, vertex, capsys
):
    manifest("--deploy")
    capsys.readouterr()
    manifest("--deploy")
    assert list(vertex.models) == [f"{PLACE}/models/100@1", f"{PLACE}/models/100@2"]
    ((_, endpoint),) = vertex.endpoints.items()
    old, new = endpoint.deployed_models
    assert dict(endpoint.traffic_split) == {new.id: 100}
    printed = capsys.readouterr().out
    assert "Created" not in printed
    assert f"--deployed-model-id={old.id}" in printed


def test_a_failed_operation_and_a_refusal_are_errors(manifest, vertex, capsys):
    vertex.failure["deploy"] = {"code": 9, "message": "Model server never became ready"}
    manifest("--deploy", code=2)
    error = capsys.readouterr().err
    assert error.startswith("vertex: cannot deploy the model: ")
    assert "Model server never became ready" in error
    vertex.failures["POST /v1/projects"] = Answer({"error": {"code": 403, "message": "no"}}, 403)
    manifest("--deploy", code=2)
    error = capsys.readouterr().err
    assert error.startswith("vertex: cannot upload the model: 403 no")
    assert "roles/aiplatform.user" in error


@pytest.mark.parametrize(
    "start",
    ["POST /v1/projects", f"GET /v1/{PLACE}/operations"],
    ids=["upload", "operation"],
)
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(b"<h1>Sign in</h1>", kind="text/html"), "'Sign in': a login page"),
        (Answer(b"x" * 10_000, drip=0.2), "answer within 10 s"),
        (Answer(b"<p>no such machine</p>", 400), "400 no such machine. Vertex refuses"),
        (Answer({"error": {"message": "expired"}}, 401), "gcloud auth application-default login"),
    ],
    ids=["login page", "drips", "refusal", "credentials"],
)
def test_requests_have_the_limits_and_errors_of_submit(
    manifest, vertex, capsys, monkeypatch, start, answer, reason
):
    # Requests before the one that drips must end within the limit.
    limit = 10.0 if answer.drip else 60.0
    monkeypatch.setattr(vertex_deploy, "Waiting", lambda: Waiting(request=limit, poll=0.01))
    vertex.failures[start] = answer
    manifest("--deploy", code=2)
    error = capsys.readouterr().err
    assert reason in error
    if answer.kind != "text/html":
        assert error.startswith("vertex: cannot upload the model: ")
    if answer.status == 400:
        assert "cluster.vertex.server" in error
    assert not vertex.endpoints


def test_no_credentials_are_an_error_before_anything_is_sent(
    manifest, vertex, capsys, monkeypatch, tmp_path
):
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    manifest("--deploy", code=2)
    assert "gcloud auth application-default login" in capsys.readouterr().err
    assert not vertex.requests


def test_no_region_is_an_error_before_anything_is_sent(manifest, vertex, capsys, monkeypatch):
    monkeypatch.delenv("GOOGLE_CLOUD_REGION")
    manifest("--deploy", code=2)
    assert "no region: name it as cluster.vertex.region" in capsys.readouterr().err
    assert not vertex.requests
