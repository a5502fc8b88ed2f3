"""`serve-manifest --target kserve`: the InferenceService and a request for it.

Reference: KServe's own schema of the resource, in data/inference_service_crd.json.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jsonschema
import pytest
import tensorflow as tf
from served_model import ROWS

from pipeline.serving.manifest import _SERVING_RELEASES, _minor_version

pytestmark = pytest.mark.slow

CRD = json.loads(
    Path(__file__).with_name("data").joinpath("inference_service_crd.json").read_text()
)
FOLDER = "s3://bucket/taxi/serving_model"
VERSION = "--set=cluster.kubeflow.server.model.runtimeVersion=2.99.0"
WRITTEN_BY = _minor_version(tf.__version__)
HAS_SERVER = pytest.mark.skipif(
    WRITTEN_BY not in _SERVING_RELEASES, reason="no TensorFlow Serving is known for this TensorFlow"
)


def closed(schema):
    """The schema, which refuses the fields that the API server would drop."""
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(value) for name, value in schema.items()}
    if isinstance(schema.get("properties"), dict):
        is_open = schema.get("x-kubernetes-preserve-unknown-fields", False)
        found.setdefault("additionalProperties", is_open)
    return found


@pytest.fixture
def manifest(write_manifest):
    """`serve-manifest` as a function of more arguments."""

    def write(*arguments, place=FOLDER, **more):
        return write_manifest("kserve", place, FOLDER, *arguments, **more)

    return write


@HAS_SERVER
def test_the_manifest_is_valid_and_names_the_servers_version(manifest):
    found = manifest()
    jsonschema.validate(found, closed(CRD["schema"]))
    assert found["apiVersion"] == "serving.kserve.io/v1beta1"
    assert found["metadata"] == {"name": "chicago-taxi"}
    served = found["spec"]["predictor"]["model"]
    assert served["modelFormat"]["name"] == "tensorflow"
    assert served["storageUri"] == FOLDER
    assert served["runtimeVersion"] == _SERVING_RELEASES[WRITTEN_BY]


def test_the_manifest_has_what_the_profile_says(manifest):
    settings = {
        "service_account": "pipeline-runner",
        "server.maxReplicas": 4,
        "server.model.resources": "{limits: {cpu: 500m, nvidia.com/gpu: '1'}}",
        "server.model.runtimeVersion": "2.99.0",
        "labels.team": "taxi",
    }
    found = manifest(*(f"--set=cluster.kubeflow.{k}={v}" for k, v in settings.items()))
    jsonschema.validate(found, closed(CRD["schema"]))
    assert found["metadata"]["labels"] == {"team": "taxi"}
    predictor = found["spec"]["predictor"]
    assert predictor["serviceAccountName"] == "pipeline-runner"
    assert (predictor["minReplicas"], predictor["maxReplicas"]) == (1, 4)
    assert predictor["model"]["resources"] == {"limits": {"cpu": "500m", "nvidia.com/gpu": "1"}}
    assert predictor["model"]["runtimeVersion"] == "2.99.0"
    own = manifest(
        "--set=cluster.kubeflow.server.serviceAccountName=kserve-s3",
        "--set=name=other",
        VERSION,
    )
    assert own["spec"]["predictor"]["serviceAccountName"] == "kserve-s3"
    assert own["metadata"]["name"] == "other"


def test_the_request_is_what_the_server_takes(manifest, tmp_path):
    (tmp_path / "rows.csv").write_text(ROWS, encoding="utf-8")
    manifest("--rows", str(tmp_path / "rows.csv"), VERSION)
    body = json.loads((tmp_path / "serving-request.json").read_text(encoding="utf-8"))
    assert body["signature_name"] == "raw"
    assert body["instances"][0] == {"size": [1.5], "rooms": [2], "the_town": ["Oslo"]}
    assert len(body["instances"]) == 3


def test_what_kserve_cannot_serve_is_refused(manifest, model, tmp_path, capsys):
    shutil.copytree(model / "12", tmp_path / "best")
    for arguments, options, reason in (
        ((), {"place": "output/taxi/serving_model"}, "kserve reads models from s3://"),
        ((), {"place": f"{FOLDER}/9"}, "which is 12, not 9"),
        (("--map", "s3://bucket"), {}, "--map"),
        (("--set=cluster.kubeflow.server.model=2.16",), {}, "server.model=2.16: give"),
        (("--rows", "none.csv", VERSION), {}, "none.csv"),
        ((), {"versions": tmp_path / "best"}, f"move the model to {FOLDER}/1, and give {FOLDER}"),
    ):
        manifest(*arguments, **options, code=2)
        assert reason in capsys.readouterr().err


def test_a_model_of_a_tensorflow_without_a_known_server_is_refused(manifest, capsys, monkeypatch):
    monkeypatch.setattr("pipeline.serving.manifest._SERVING_RELEASES", {"2.1": "2.1.0"})
    manifest(code=2)
    error = capsys.readouterr().err
    assert f"server.model.runtimeVersion: TensorFlow {tf.__version__} wrote the model" in error
