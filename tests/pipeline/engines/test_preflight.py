"""Every configuration mistake ends within seconds with an error that names it, never in a hang.

The mistakes are real: ports with no server, another server or a silent one, a pool whose `python`
lacks Beam, one with other packages and sources, one that does not see a folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
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

from .conftest import SETTINGS

ROOT = Path(__file__).resolve().parents[3]
WORKER_POOL = [sys.executable, "-m", "pipeline", "worker-pool"]


def config_error(config: PipelineConfig) -> str:
    with pytest.raises(ConfigError) as error:
        check_engine(config)
    return str(error.value)


@pytest.fixture
def silent() -> Iterator[str]:
    """Return an address that accepts connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def nobody() -> str:
    """Return an address on which no server listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.timeout(60)
def test_no_job_server(write, nobody):
    text = config_error(load_config(write(), ["beam.engine=flink", f"beam.job_endpoint={nobody}"]))
    assert f"beam.job_endpoint={nobody}: no job server there (connection refused)" in text
    assert "`make flink` starts one" in text


@pytest.mark.timeout(60)
def test_a_silent_server_instead_of_a_job_server(write, silent, monkeypatch):
    monkeypatch.setattr(job_server, "CONNECT_SECONDS", 1.0)
    text = config_error(load_config(write(), ["beam.engine=spark", f"beam.job_endpoint={silent}"]))
    assert "what answers there is no Beam job server" in text


@pytest.mark.timeout(60)
def test_flink_is_missing_or_silent(nobody, silent, monkeypatch):
    monkeypatch.setattr(flink_rest, "TIMEOUT_SECONDS", 1.0)
    with pytest.raises(flink_rest.FlinkError, match="connection refused"):
        flink_rest.overview(nobody)
    with pytest.raises(flink_rest.FlinkError, match="no answer within 1 seconds"):
        flink_rest.overview(silent)


@pytest.mark.parametrize(
    ("free", "slots", "host", "message"),
    [
        (4, 4, "127.0.0.1", ""),
        (0, 0, "127.0.0.1", "exceeds the 0 slots of Flink"),
        (1, 1, "127.0.0.1", "the 1 slots of Flink at f:1 (2 TaskManagers). Use 1 or less."),
        (1, 4, "127.0.0.1", "only 1 of 4 slots of Flink at f:1 are free, 3 jobs run"),
        # An address of RFC 5737's documentation network.
        (4, 4, "192.0.2.7", "loopback: the TaskManager at 192.0.2.7 cannot reach"),
    ],
)
def test_slots_and_hosts_of_flink(free, slots, host, message, monkeypatch):
    seen = flink_rest.Overview(2, slots, free, 3, 0, 0, 0)
    monkeypatch.setattr(flink_rest, "overview", lambda address: seen)
    monkeypatch.setattr(flink_rest, "cancel_jobs", lambda address, wanted: False)
    monkeypatch.setattr(flink_rest, "task_manager_hosts", lambda address: [host])
    if not message:
        Flink(rest="f:1").check_cluster()
        return
    with pytest.raises(ConfigError) as error:
        Flink(rest="f:1").check_cluster()
    assert message in str(error.value)


def test_dataflow_does_not_see_folders_of_this_machine(write):
    text = config_error(load_config(write(), ["beam.engine=dataflow", *SETTINGS["dataflow"]]))
    assert "workers in Google Cloud do not see data.path=" in text
    assert "output.folder=" in text


def test_a_worker_that_does_not_see_the_folder(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(FileNotFoundError, match=MISSING_PATH):
        collect_worker_info(0, str(tmp_path / "elsewhere"), [])


@pytest.mark.timeout(60)
def test_no_worker_pool(write, nobody):
    text = config_error(load_config(write(), external(nobody)))
    assert f"beam.worker_pool={nobody}: no worker pool there (connection refused)" in text
    assert "python -m pipeline worker-pool" in text


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_pool_that_the_engine_does_not_reach(write, nobody, monkeypatch):
    """As for a pool on another machine, which this process does not check."""
    monkeypatch.setattr(job_server, "is_loopback", lambda host: False)
    text = config_error(load_config(write(), external(nobody)))
    assert f"the engine cannot reach beam.worker_pool={nobody}. Start" in text


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_pool_whose_python_lacks_beam(write, tmp_path, nobody):
    """Beam's own pool starts the first `python` on PATH; without the limit a job waits forever."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    python.chmod(0o755)
    beams_pool = [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main"]
    path = f"{python.parent}:{os.environ['PATH']}"
    with pool(nobody, beams_pool, option="--service_port", PATH=path):
        text = config_error(load_config(write(), [*external(nobody), "beam.probe_seconds=10"]))
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
def test_a_pool_with_other_packages_is_rejected(write, tmp_path, nobody):
    config = load_config(write(), external(nobody))
    with pool(nobody):
        check_engine(config)
    old = tmp_path / "old"
    for package in ("pipeline", "components", "transform", "trainer_module", "shared_core"):
        shutil.copytree(ROOT / package, old / package)
    with (old / "transform" / "scale.py").open("a") as source:
        source.write("# changed\n")
    (old / "tfx-0.1.dist-info").mkdir()  # found before the environment's
    (old / "tfx-0.1.dist-info" / "METADATA").write_text("Name: tfx\nVersion: 0.1\n")
    with pool(nobody, folder=old):
        text = config_error(config)
    assert f"has tfx 0.1, here it is {version('tfx')}; other sources of this project" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"python": "3.9"}, "has Python 3.9, here it is 3."),
        ({"packages": {}}, "has apache-beam None, here it is"),
        ({"project": "0"}, "has other sources of this project than this process"),
    ],
)
def test_a_worker_that_differs_from_this_process(changes, message, write):
    worker = dataclasses.replace(WorkerInfo.current(), host="far", **changes)
    with pytest.raises(ConfigError) as error:
        compare(worker, folders_of(load_config(write())), "beam.engine=flink, environment=external")
    text = str(error.value)
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
    """The pool runs with an empty file system mounted over the folder, as on another machine."""
    unshare = ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine does not allow mount namespaces")
    for folder in ("data", "out"):
        (tmp_path / folder).mkdir()
    config = load_config(
        write(lambda config: config["data"].update(path="data/rows.csv")), external(nobody)
    )
    (tmp_path / "rows.csv").rename(tmp_path / "data" / "rows.csv")
    covered = f'mount -t tmpfs none "{tmp_path / hidden}" && exec "$@"'
    with pool(nobody, [*unshare, "sh", "-c", covered, "sh", *WORKER_POOL]):
        text = config_error(config)
    assert message.format(folder=tmp_path) in text


def external(address: str) -> list[str]:
    return ["beam.engine=portable", "beam.environment=external", f"beam.worker_pool={address}"]


@contextlib.contextmanager
def pool(
    address: str,
    command: Sequence[str] = WORKER_POOL,
    *,
    option: str = "--port",
    folder: Path = ROOT,
    **environment: str,
) -> Iterator[None]:
    """A worker pool in another process, until the block ends."""
    process = subprocess.Popen(
        [*command, f"{option}={address.rpartition(':')[2]}"],
        env={**os.environ, "PYTHONPATH": str(folder), **environment},
        cwd=folder,
    )
    try:
        deadline = time.monotonic() + 60
        while unreachable(address, 5.0):
            assert process.poll() is None, "the pool ended"
            assert time.monotonic() < deadline, "the pool does not listen"
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait(20)
