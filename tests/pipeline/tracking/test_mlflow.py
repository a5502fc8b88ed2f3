"""Runs on a real MLflow server, read back through its client."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import ROOT

from pipeline.common import exit_codes
from pipeline.config.config import PipelineConfig
from pipeline.config.config_file import load_config
from pipeline.report.run_record import records_of
from pipeline.run.runner import run

from ..conftest import config_of, csv_text

pytestmark = pytest.mark.mlflow

MLFLOW = ROOT / "build" / "mlflow-server" / "bin" / "mlflow"


class Server:
    """A process of `mlflow server`."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.uri = f"http://127.0.0.1:{port}"
        self.log = folder / "server.log"
        command = [MLFLOW, "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
        command += ["--backend-store-uri", f"sqlite:///{folder}/runs.db"]
        command += ["--artifacts-destination", str(folder / "artifacts")]
        quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **quiet},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Returns when it answers."""
        for _ in range(600):
            assert self._process.poll() is None, self.log.read_text()
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self.uri}/health", timeout=5).close()
                return
            time.sleep(0.2)
        pytest.fail(self.log.read_text())

    def stop(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait(30)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("server"))
    try:
        started.wait()
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="module")
def client(server: Server) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=server.uri)


@pytest.fixture(scope="module")
def file(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The YAML of a pipeline that ran once, and whose model is blessed."""
    folder = tmp_path_factory.mktemp("pipeline")
    (folder / "rows.csv").write_text(csv_text())
    config = config_of(folder)
    config["evaluation"] |= {"slices": ["city"], "thresholds": {"auc": {"lower_bound": 0.0}}}
    config["evaluation"]["require_better_than_constant"] = False
    config["training"]["epochs"] = 2
    config["tracking"] = {"mlflow": server.uri}
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump(config))
    assert run(load_config(path)).code == exit_codes.DONE
    return path


@pytest.fixture(scope="module")
def config(file: Path) -> PipelineConfig:
    return load_config(file)


@pytest.fixture(scope="module")
def exported(client: Any, config: PipelineConfig) -> Any:
    return latest(client, config)


def latest(client: Any, config: PipelineConfig) -> Any:
    experiment = client.get_experiment_by_name(config.name)
    return client.search_runs([experiment.experiment_id], order_by=["start_time DESC"])[0]


def test_settings_and_tags(exported, config):
    summary = json.loads(Path(config.output.folder, "summary.json").read_text())
    assert exported.info.status == "FINISHED"
    assert exported.data.tags["pipeline"] == "small"
    assert exported.data.tags["ml_metadata_run_id"] == summary["run"]["id"]
    assert exported.data.tags["verdict"] == "blessed"
    assert "failed_node" not in exported.data.tags


def test_final_metrics(exported, config):
    summary = json.loads(Path(config.output.folder, "summary.json").read_text())
    values = {tuple(s["slice"].values()): s["metrics"]["auc"] for s in summary["slices"]}
    assert set(values) == {(), ("Kyoto",), ("Lima",), ("Oslo",)}
    for town, auc in values.items():
        key = "/".join(["eval/auc", *(f"city:{name}" for name in town)])
        assert exported.data.metrics[key] == auc


def test_files(exported, config, client, tmp_path):
    record, *_ = records_of(config.output.folder)
    for name in ("summary.json", "config.json", "report.html"):
        client.download_artifacts(exported.info.run_id, name, str(tmp_path))
        assert (tmp_path / name).read_bytes() == (record.folder / name).read_bytes()


def test_a_cached_run_is_a_run(exported, config, client, file):
    assert run(config).code == exit_codes.DONE
    second = latest(client, config)
    assert second.info.run_id != exported.info.run_id
    assert second.info.status == "FINISHED"
    assert second.data.metrics["eval/auc"] == exported.data.metrics["eval/auc"]


def test_a_failed_run(file, client):
    config = load_config(file, ["normalization.z_score.max_std_error=1e-9"])
    assert run(config).code == exit_codes.FAILED
    failed = latest(client, config)
    assert failed.info.status == "FAILED"
    assert failed.data.tags["failed_node"] == "NormalizationValidator"
    assert "eval/auc" not in failed.data.metrics
    assert "verdict" not in failed.data.tags


def test_a_server_that_stops_during_a_run(config, file, server, monkeypatch, capfd):
    """The preflight finds it, and the run keeps its exit code and its results."""
    from pipeline.run import runner

    original = runner.keep_record

    def keep_and_stop(*args, **kwargs):
        record = original(*args, **kwargs)
        server.stop()
        return record

    monkeypatch.setattr(runner, "keep_record", keep_and_stop)
    summary = Path(config.output.folder, "summary.json")
    before = summary.read_bytes()
    assert run(config).code == exit_codes.DONE
    assert summary.read_bytes() != before
    printed = capfd.readouterr().out
    assert f"not exported to tracking.mlflow={server.uri}: Connection refused" in printed
