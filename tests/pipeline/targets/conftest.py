"""Servers on loopback that the environment names, as a user's would."""

from __future__ import annotations

import json

import pytest

# The client looks up in the background where accounts of Google's own universe may be used.
_UNIVERSE = "loopback.test"


@pytest.fixture
def kubeflow(monkeypatch):
    """A Kubeflow that KF_PIPELINES_ENDPOINT names."""
    from kubeflow_server import KubeflowServer

    for name in ("KF_PIPELINES_UI_ENDPOINT", "KF_PIPELINES_DEFAULT_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    server = KubeflowServer()
    with server.serving():
        monkeypatch.setenv("KF_PIPELINES_ENDPOINT", server.url)
        yield server


@pytest.fixture(scope="session")
def google_key(tmp_path_factory):
    """A service account's key file; its tokens are signed here, so that no server is asked."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    text = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    file = tmp_path_factory.mktemp("key") / "key.json"
    account = {
        "type": "service_account",
        "project_id": "my-project",
        "client_email": "submitter@my-project.iam.gserviceaccount.com",
        "private_key": text.decode(),
        "token_uri": "http://127.0.0.1:9/token",
        "universe_domain": _UNIVERSE,
    }
    file.write_text(json.dumps(account))
    return file


@pytest.fixture
def vertex(monkeypatch, google_key):
    """A Vertex that gcloud's own variable names, and credentials that it knows."""
    from vertex_server import VertexServer

    for name in ("GOOGLE_CLOUD_PROJECT", "CLOUD_ML_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(google_key))
    monkeypatch.setenv("GOOGLE_CLOUD_UNIVERSE_DOMAIN", _UNIVERSE)
    monkeypatch.setenv("GOOGLE_CLOUD_REGION", "europe-west4")
    server = VertexServer()
    with server.serving():
        monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM", f"{server.url}/")
        yield server
