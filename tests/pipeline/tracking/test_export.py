"""What is exported, and the check of a server before a run; without a server."""

from __future__ import annotations

import socket
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.common.errors import ConfigError
from pipeline.config.config_file import load_config
from pipeline.tracking.export import _metrics_of, _secrets_of, check_server


def summary(slices):
    return {
        "judged_split": "test",
        "slices": slices,
        "baselines": [{"name": "constant", "metrics": {"auc": 0.5}}],
        "rows": {"train": 40},
        "nodes": [{"name": "Trainer", "seconds": 1.5}],
    }


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("beam.options=[--s3_secret_access_key=hush]", "beam.options"),
        ("beam.options=['--endpoint=https://me:hush@host']", "beam.options"),
        ("cluster.kubeflow={image: 'a/b:1', pipeline_root: 's3://b/r', environment: {TOKEN: hush}}",
         "cluster.kubeflow.environment.TOKEN"),
    ],
)  # fmt: skip
def test_credentials_stay_here(write, override, key):
    config = load_config(write(), [override])
    assert _secrets_of(config) == [key]


def test_a_yaml_without_credentials(write):
    assert _secrets_of(load_config(write())) == []


def test_metrics_of_slices_baselines_and_nodes():
    found = _metrics_of(
        summary(
            [
                {"slice": {}, "metrics": {"auc": 0.75, "precision": None}},
                {"slice": {"city": "a/b, c", "paid": True}, "metrics": {"auc": 0.25}},
                {"slice": {"city": "a_b; c", "paid": True}, "metrics": {"auc": 0.5}},
            ]
        )
    )
    assert found == {
        "test/auc": 0.75,
        "test/auc/city:a_b_ c/paid:True": 0.25,
        "test/auc/city:a_b_ c/paid:True_2": 0.5,
        "baseline/constant/auc": 0.5,
        "rows/train": 40,
        "seconds/Trainer": 1.5,
    }


@given(st.lists(st.text(), max_size=5))
def test_any_slice_has_a_legal_name(values):
    """By the rules of the MLflow that is installed."""
    from mlflow.utils import validation

    metrics = _metrics_of(summary([{"slice": {"a": v}, "metrics": {"auc": 0.5}} for v in values]))
    assert len(metrics) == len(values) + 3
    for name in metrics:
        validation._validate_metric(name, 0.5, 0, 0)


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
