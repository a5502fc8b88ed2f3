"""The check of an MLflow server before a run: each failure names field, value, cause and fix."""

from __future__ import annotations

import os
import socket
import sys

import pytest

from pipeline.common.errors import ConfigError
from pipeline.config.config_file import load_config
from pipeline.tracking.server import check_server, client_of


def refusal(write, uri):
    config = load_config(write(), [f"tracking.mlflow={uri}"])
    with pytest.raises(ConfigError, match="--set tracking=null") as refused:
        check_server(config)
    return str(refused.value)


def test_no_server(write):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{free.getsockname()[1]}"
        assert f"tracking.mlflow={uri}: " in (text := refusal(write, uri))
        assert "Connection refused" in text


def test_a_server_that_does_not_answer(write, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")  # a user's setting is used
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        text = refusal(write, f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert "no answer in time" in text
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "1"


def test_the_environment_is_as_before(write):
    config = load_config(write(), ["tracking.mlflow=http://localhost:1"])
    before = dict(os.environ)
    with client_of(config, seconds=3):
        assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "3"
    assert dict(os.environ) == before


def test_the_package_is_missing(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert "tfx-largebatch[mlflow]" in refusal(write, "http://localhost:5000")


def test_no_tracking_needs_no_package(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    check_server(load_config(write()))


@pytest.mark.parametrize(
    ("uri", "facts"),
    [
        ("https://me:hush@host:5000/path", ["tracking.mlflow=https://...@host:5000", "USERNAME"]),
        ("https://hush@host", ["tracking.mlflow=https://...@host", "USERNAME"]),
        ("./mlruns", ["tracking.mlflow=./mlruns", "mlflow server", "http://127.0.0.1:5000"]),
        ("sqlite:///runs.db", ["tracking.mlflow=sqlite:///runs.db", "mlflow server"]),
        ("http://host:port", ["tracking.mlflow", "http://host:5000"]),
    ],
)
def test_a_uri_that_is_no_server(write, uri, facts):
    with pytest.raises(ConfigError) as refused:
        load_config(write(), [f"tracking.mlflow={uri}"])
    for fact in facts:
        assert fact in str(refused.value)
    assert "hush" not in str(refused.value)
