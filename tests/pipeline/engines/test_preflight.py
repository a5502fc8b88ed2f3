"""Every configuration mistake ends within seconds, in words that name it; none in a hang.

The mistakes are real: ports on which nobody, something else or something silent listens, a pool
whose `python` lacks Beam, one with other packages and sources, one that does not see a folder.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from pipeline.common import exit_codes
from pipeline.common.errors import ConfigError
from pipeline.config.config import PipelineConfig
from pipeline.config.config_file import load_config
from pipeline.engines import job_server
from pipeline.engines.flink import Flink
from pipeline.engines.probe import MISSING_PATH, WorkerInfo, collect_worker_info
from pipeline.engines.reach import unreachable
from pipeline.engines.worker_check import compare
from pipeline.flink import flink_rest
from pipeline.preflight.preflight_engine import check_engine, folders_of

ROOT = Path(__file__).resolve().parents[3]
WORKER_POOL = [sys.executable, "-m", "pipeline", "worker-pool"]


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
    monkeypatch.setattr(job_server, "CONNECT_SECONDS", 1.0)
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
    monkeypatch.setattr(flink_rest, "cancel_jobs", lambda address, wanted: [])
    monkeypatch.setattr(flink_rest, "task_managers", lambda address: [])
    if not message:
        Flink(rest="f:1").check_cluster()
        return
    with pytest.raises(ConfigError) as caught:
        Flink(rest="f:1").check_cluster()
    assert message in str(caught.value)


def test_loopback_workers_of_a_far_task_manager(monkeypatch):
    far = flink_rest.TaskManager("1", "192.0.2.7", 4, 4)  # of RFC 5737's documentation network
    seen = flink_rest.Overview("1.19.3", 1, 4, 4, 0, 0, 0, 0)
    monkeypatch.setattr(flink_rest, "overview", lambda address: seen)
    monkeypatch.setattr(flink_rest, "cancel_jobs", lambda address, wanted: [])
    monkeypatch.setattr(flink_rest, "task_managers", lambda address: [far])
    with pytest.raises(ConfigError, match=r"TaskManager at 192\.0\.2\.7 cannot reach"):
        Flink(rest="f:1").check_cluster()


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
    with pytest.raises(FileNotFoundError, match=MISSING_PATH):
        collect_worker_info(0, str(tmp_path / "elsewhere"), [])


@pytest.mark.timeout(60)
def test_no_worker_pool(write, nobody):
    text = refusal(load_config(write(), external(nobody)))
    assert f"beam.worker_pool={nobody}: no worker pool there (connection refused)" in text
    assert "python -m pipeline worker-pool" in text


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_pool_that_the_engine_does_not_reach(write, nobody, monkeypatch):
    """As for a pool beside another machine, which this process does not ask."""
    monkeypatch.setattr(job_server, "is_loopback", lambda host: False)
    text = refusal(load_config(write(), external(nobody)))
    assert f"the engine cannot reach beam.worker_pool={nobody}. Start" in text


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_pool_whose_python_lacks_beam(write, tmp_path, nobody):
    """Beam's own pool starts the first `python` on PATH; without the limit a job waits forever."""
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
        text = refusal(load_config(write(), [*external(nobody), "beam.probe_seconds=10"]))
    assert "no end within 10 seconds" in text
    assert "the first `python` on its PATH, which may lack Beam" in text
    assert "python -m pipeline worker-pool" in text


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_command_ends_after_the_time_limit_of_the_probe(write, silent):
    """Beam's threads still wait for the pool then: they must not keep the process alive."""
    command = [sys.executable, "-m", "pipeline", "run", "--config", str(write())]
    changes = [f"--set={each}" for each in [*external(silent), "beam.probe_seconds=5"]]
    done = subprocess.run(
        [*command, *changes],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == exit_codes.WRONG_INPUT, done.stderr
    assert "no end within 5 seconds" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_pool_like_this_process_passes_and_another_one_does_not(write, tmp_path, nobody):
    config = load_config(write(), external(nobody))
    port = f"--port={nobody.rpartition(':')[2]}"
    with pool(WORKER_POOL, port, address=nobody, environment={"PYTHONPATH": str(ROOT)}):
        check_engine(config)
    old = tmp_path / "old"
    for package in ("pipeline", "components", "transform", "trainer_module", "shared_core"):
        shutil.copytree(ROOT / package, old / package)
    with (old / "transform" / "scale.py").open("a") as source:
        source.write("# changed\n")
    (old / "tfx-0.1.dist-info").mkdir()  # found before the environment's own
    (old / "tfx-0.1.dist-info" / "METADATA").write_text("Name: tfx\nVersion: 0.1\n")
    with pool(WORKER_POOL, port, address=nobody, environment={"PYTHONPATH": str(old)}, folder=old):
        text = refusal(config)
    assert f"has tfx 0.1, here it is {version('tfx')}; other sources of this project" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"python": "3.9"}, "has Python 3.9, here it is 3."),
        ({"packages": {}}, "has apache-beam None, here it is"),
        ({"project": "0"}, "has other sources of this project than this process"),
    ],
)
def test_a_worker_that_is_not_like_this_process(changes, message, write):
    worker = dataclasses.replace(WorkerInfo.current(), host="far", **changes)
    with pytest.raises(ConfigError) as caught:
        compare(worker, folders_of(load_config(write())), "beam.engine=flink, environment=external")
    text = str(caught.value)
    assert text.startswith("beam.engine=flink, environment=external: a worker on far has ")
    assert message in text


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("hidden", "message"),
    [
        ("data", "data.path={folder}/data/rows.csv: a worker on"),
        ("out", "workers do not see output.folder={folder}/out. Use a folder that is shared"),
    ],
)
def test_a_folder_that_workers_do_not_see(hidden, message, write, tmp_path, nobody):
    """The pool runs where an empty file system lies over the folder, as on another machine."""
    unshare = ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody make a mount namespace")
    for folder in ("data", "out"):
        (tmp_path / folder).mkdir()
    config = load_config(
        write(lambda config: config["data"].update(path="data/rows.csv")), external(nobody)
    )
    (tmp_path / "rows.csv").rename(tmp_path / "data" / "rows.csv")
    covered = f'mount -t tmpfs none "{tmp_path / hidden}" && exec "$@"'
    with pool(
        [*unshare, "sh", "-c", covered, "sh", *WORKER_POOL],
        f"--port={nobody.rpartition(':')[2]}",
        address=nobody,
        environment={"PYTHONPATH": str(ROOT)},
    ):
        text = refusal(config)
    assert message.format(folder=tmp_path) in text


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
        while unreachable(self._address, 5.0):
            assert self._process.poll() is None, "the pool ended"
            assert time.monotonic() < deadline, "the pool does not listen"
            time.sleep(0.2)

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.wait(20)
