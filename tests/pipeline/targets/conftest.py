"""Servers on loopback that the environment names, as a user's would."""

from __future__ import annotations

import pytest


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
    """A service account's key file, which signs tokens without a request to a server."""
    from vertex_server import write_account_key

    return write_account_key(tmp_path_factory.mktemp("key") / "key.json")


@pytest.fixture
def vertex(monkeypatch, google_key):
    """A Vertex that gcloud's own variable names, and credentials that it knows."""
    from vertex_server import VertexServer, client_environment

    for name in ("GOOGLE_CLOUD_PROJECT", "CLOUD_ML_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GOOGLE_CLOUD_REGION", "europe-west4")
    server = VertexServer()
    with server.serving():
        for name, value in client_environment(google_key, server.url).items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture(params=["kubeflow", "vertex"])
def platform(request):
    return request.param


@pytest.fixture
def server(platform, request):
    """The server of the platform."""
    return request.getfixturevalue(platform)
