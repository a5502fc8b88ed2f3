"""Every configuration mistake ends within seconds, in words that name it; none in a hang.

The mistakes are real: ports on which nobody, something else or something silent listens, a pool
whose `python` lacks Beam, a pool with other sources of this project.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.config import ConfigError, PipelineConfig, load_config
from pipeline.engines import flink_rest, preflight
from pipeline.engines.preflight import check_engine
from pipeline.engines.presets import Flink
from pipeline.engines.probe import UNSEEN, look_around

ROOT = Path(__file__).resolve().parents[3]


def refusal(config: PipelineConfig) -> str:
    with pytest.raises(ConfigError) as caught:
        check_engine(config)
    return str(caught.value)


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def nobody() -> str:
    """An address on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.timeout(60)
def test_no_job_server(write, nobody):
    text = refusal(load_config(write(), ["beam.engine=flink", f"beam.job_endpoint={nobody}"]))
    assert f"beam.job_endpoint={nobody}: no job server there (connection refused)" in text
    assert "`make flink` starts one" in text


@pytest.mark.timeout(60)
def test_something_silent_instead_of_a_job_server(write, silent, monkeypatch):
    monkeypatch.setattr(preflight, "CONNECT_SECONDS", 1.0)
    text = refusal(load_config(write(), ["beam.engine=spark", f"beam.job_endpoint={silent}"]))
    assert "what answers there is no Beam job server" in text


@pytest.mark.timeout(60)
def test_flink_is_not_there_or_silent(nobody, silent, monkeypatch):
    monkeypatch.setattr(flink_rest, "TIMEOUT_SECONDS", 1.0)
    with pytest.raises(flink_rest.FlinkError, match="connection refused"):
        flink_rest.overview(nobody)
    with pytest.raises(flink_rest.FlinkError, match="no answer within 1 seconds"):
        flink_rest.overview(silent)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("free", "slots", "message"),
    [
        (4, 4, ""),
        (0, 0, "exceeds the 0 slots of Flink"),
        (1, 1, "exceeds the 1 slots of Flink at f:1 (2 TaskManagers). Use 1 or less."),
        (1, 4, "only 1 of 4 slots of Flink at f:1 are free, 3 jobs run"),
    ],
)
def test_slots(free, slots, message, monkeypatch):
    seen = flink_rest.Overview("1.19.3", 2, slots, free, 3, 0, 0, 0)
    monkeypatch.setattr(flink_rest, "overview", lambda address: seen)
    monkeypatch.setattr(flink_rest, "task_managers", lambda address: [])
    if not message:
        preflight._check_flink(Flink(), "f:1")
        return
    with pytest.raises(ConfigError) as caught:
        preflight._check_flink(Flink(), "f:1")
    assert message in str(caught.value)


def test_loopback_workers_of_a_far_task_manager(monkeypatch):
    far = flink_rest.TaskManager("1", "192.0.2.7", 4, 4)  # of RFC 5737's documentation network
    seen = flink_rest.Overview("1.19.3", 1, 4, 4, 0, 0, 0, 0)
    monkeypatch.setattr(flink_rest, "overview", lambda address: seen)
    monkeypatch.setattr(flink_rest, "task_managers", lambda address: [far])
    with pytest.raises(ConfigError, match=r"TaskManager at 192\.0\.2\.7 cannot reach"):
        preflight._check_flink(Flink(), "f:1")


def test_dataflow_does_not_see_folders_of_this_machine(write):
    fields = ["project=my-project", "region=europe-west1", "temp_location=gs://bucket/tmp"]
    config = load_config(
        write(),
        [
            "beam.engine=dataflow",
            "beam.sdk_container_image=a/b",
            *(f"beam.{field}" for field in fields),
        ],
    )
    text = refusal(config)
    assert "workers in Google Cloud do not see data.path=" in text
    assert "output.folder=" in text


def test_a_worker_that_does_not_see_the_folder(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(FileNotFoundError, match=UNSEEN):
        look_around(0, str(tmp_path / "elsewhere"), [])


@pytest.mark.timeout(60)
def test_no_worker_pool(write, nobody):
    text = refusal(load_config(write(), external(nobody)))
    assert f"beam.worker_pool={nobody}: no worker pool there (connection refused)" in text
    assert "python -m pipeline worker-pool" in text


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_pool_whose_python_lacks_beam(write, tmp_path, nobody, monkeypatch):
    """Beam's own pool starts the first `python` on PATH; a job would wait for it for ever."""
    monkeypatch.setattr(preflight, "POOL_SECONDS", 10.0)
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    python.chmod(0o755)
    with pool(
        [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main"],
        f"--service_port={nobody.rpartition(':')[2]}",
        address=nobody,
        environment={"PATH": f"{python.parent}:{os.environ['PATH']}"},
    ):
        text = refusal(load_config(write(), external(nobody)))
    assert "did not connect within 10 seconds" in text
    assert "the first `python` on its PATH, which probably lacks Beam" in text


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_pool_like_this_process_passes_and_one_with_other_sources_does_not(
    write, tmp_path, nobody
):
    command = [sys.executable, "-m", "pipeline", "worker-pool"]
    port = f"--port={nobody.rpartition(':')[2]}"
    config = load_config(write(), external(nobody))
    with pool(command, port, address=nobody, environment={"PYTHONPATH": str(ROOT)}):
        check_engine(config)
    for package in ("pipeline", "components", "transform", "trainer_module"):
        shutil.copytree(ROOT / package, tmp_path / "old" / package)
    with (tmp_path / "old" / "transform" / "scale.py").open("a") as source:
        source.write("# changed\n")
    old = tmp_path / "old"
    with pool(command, port, address=nobody, environment={"PYTHONPATH": str(old)}, folder=old):
        assert "other sources of this project than this process" in refusal(config)


def external(address: str) -> list[str]:
    return ["beam.engine=portable", "beam.environment=external", f"beam.worker_pool={address}"]


class pool:
    """A worker pool in a process of its own, until the block is left."""

    def __init__(
        self,
        command: list[str],
        port: str,
        *,
        address: str,
        environment: dict[str, str],
        folder: Path = ROOT,
    ) -> None:
        self._process = subprocess.Popen(
            [*command, port], env={**os.environ, **environment}, cwd=folder
        )
        self._address = address

    def __enter__(self) -> None:
        deadline = time.monotonic() + 60
        while preflight._unreachable(self._address):
            assert self._process.poll() is None, "the pool ended"
            assert time.monotonic() < deadline, "the pool does not listen"
            time.sleep(0.2)

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.wait(20)
