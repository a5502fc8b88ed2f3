"""A cluster is found again after a killed start, a damaged file and the loss of a process.

The processes are real, but programs that sleep stand for Flink's JVMs: `test_flink` has those.
"""

from __future__ import annotations

import dataclasses
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from pipeline.common.errors import ConfigError
from pipeline.engines.flink import Flink
from pipeline.flink import flink_cluster, flink_memory, flink_rest, processes
from pipeline.flink.flink_files import FlinkFiles
from pipeline.flink.flink_state import STATE, Cluster, find_cluster
from pipeline.report.progress import NodeState, RunState
from pipeline.run import runner

NAMES = {"JobManager", "TaskManager-1", "TaskManager-2", "job-server", "worker-pool"}
KILLED = """
import os, signal, sys
from pathlib import Path
from pipeline.flink import flink_cluster
from pipeline.flink.flink_files import FlinkFiles
folder = Path(sys.argv[1])
flink_cluster.find_java = lambda: sys.argv[2]
flink_cluster.ensure_files = lambda say: FlinkFiles(folder)
flink_cluster.Cluster.save = lambda self: os.kill(os.getpid(), signal.SIGKILL)
flink_cluster.start(folder, flink_cluster.Ports(0, 0, 0), memory="5GiB")
"""


@pytest.fixture
def java(tmp_path: Path) -> str:
    """Return a program that takes any arguments and sleeps."""
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    return str(program)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a cluster's folder; its processes are stopped at the end."""
    folder = (tmp_path / "flink").resolve()
    yield folder
    processes.stop(processes.started_in(folder))


@pytest.fixture
def start(java: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Cluster]:
    """Return a function that starts a cluster; `messages` has its messages."""
    monkeypatch.setattr(flink_cluster, "find_java", lambda: java)
    monkeypatch.setattr(flink_cluster, "ensure_files", lambda say: FlinkFiles(folder))
    monkeypatch.setattr(flink_cluster, "wait_until_ready", lambda cluster, slots: None)
    monkeypatch.setattr(flink_memory, "free_machine_memory", lambda: 16 << 30)
    messages: list[str] = []

    def start() -> Cluster:
        messages.clear()
        return flink_cluster.start(folder, flink_cluster.Ports(0, 0, 0), say=messages.append)

    start.messages = messages  # type: ignore[attr-defined]
    return start


def running(folder: Path) -> set[str]:
    return {process.name for process in processes.started_in(folder)}


def test_processes_of_a_start_that_was_killed_are_found(start, folder, java):
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder), java], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not (folder / STATE).exists()
    # The environment of a process cannot be read while it runs `exec`.
    deadline = time.monotonic() + 60
    while running(folder) != {"JobManager"}:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    left = Cluster.load(folder)
    assert left is not None
    assert f"{folder / STATE} is not there; running: JobManager" in flink_cluster.status(left)
    old = left.processes[0]
    cluster = start()
    assert f"{folder / STATE} is not there: ending 1 processes" in start.messages[0]
    assert old.process() is None
    assert running(folder) == NAMES
    cluster.stop()
    assert running(folder) == set()
    assert Cluster.load(folder) is None


def test_a_damaged_file_is_named_and_replaced(start, folder):
    first = start()
    file = folder / STATE
    for damaged in (b"", b"\xff\xfe{}", b"[]", b"{}", file.read_bytes()[:40]):
        file.write_bytes(damaged)
        torn = Cluster.load(folder)
        assert torn is not None
        assert f"{file} is damaged" in torn.damage
    assert f"{file} is damaged (JSONDecodeError" in flink_cluster.status(torn)
    assert not flink_cluster.is_healthy(torn)
    second = start()
    assert f"{file} is damaged" in start.messages[0]
    assert "ending 5 processes of an earlier start" in start.messages[0]
    assert len(first.dead()) == 5
    assert Cluster.load(folder) == second
    assert list(folder.glob(".cluster*")) == []


def test_a_cluster_that_lost_a_process_is_restarted_unless_it_has_jobs(start, folder, monkeypatch):
    cluster = start()
    with pytest.raises(ConfigError, match="runs already, its REST endpoint at"):
        start()
    victim = cluster.task_managers()[0]
    Path(victim.log).write_text(
        "Caused by: java.net.ConnectException: finishConnect(..) failed: Connection refused\n"
        "Terminating due to java.lang.OutOfMemoryError: Java heap space\n"
    )
    os.kill(victim.pid, signal.SIGKILL)
    while victim.process():
        pass
    engine = Flink(job_endpoint=f"localhost:{cluster.ports.job_server}")
    assert find_cluster(engine.job_endpoint) == cluster
    why = "TaskManager-1 of the Flink cluster in .* ended: Terminating .*OutOfMemoryError: Java"
    with pytest.raises(ConfigError, match=why) as caught:
        engine.check_processes()
    again = f"python -m pipeline flink start --folder {folder} --rest-port {cluster.ports.rest} "
    again += f"--job-port {cluster.ports.job_server} --pool-port {cluster.ports.worker_pool}"
    assert f"`{again}` restarts it" in str(caught.value)
    found = engine.diagnose(RuntimeError("Connection refused"))
    assert found is not None
    assert f"{again} --memory " in found.fix  # more: it ran out of memory

    state = RunState([NodeState("ArrowExampleGen", "done"), NodeState("Transform", "failed")])
    shown = io.StringIO()
    monkeypatch.setattr(sys, "argv", ["pipeline/__main__.py", "run", "--config", "my own.yaml"])
    config: Any = SimpleNamespace(beam=engine)
    runner.print_failure(RuntimeError("Connection refused"), state, config, Console(file=shown))
    for line in (
        "TaskManager-1 of the Flink cluster in",
        "Finished, and taken from the cache by the next run: ArrowExampleGen.",
        f"To fix it:   {again} --memory ",
        "To continue: python -m pipeline run --config 'my own.yaml'\n",
    ):
        assert line in shown.getvalue()
    monkeypatch.setattr(flink_memory, "free_machine_memory", lambda: 8 << 30)
    found = engine.diagnose(RuntimeError("Connection refused"))
    assert found is not None
    assert "It was started with 9,830 MB, and this machine has no more." in found.words
    assert found.fix == again
    at_home = dataclasses.replace(cluster, folder=Path("/my flink"), ports=flink_cluster.Ports())
    assert at_home.start_command() == "python -m pipeline flink start --folder '/my flink'"

    seen = flink_rest.Overview(1, 2, 0, 3, 0, 0, 0)
    with monkeypatch.context() as patch:
        patch.setattr(flink_rest, "overview", lambda address: seen)
        with pytest.raises(ConfigError, match=r"but TaskManager-1 ended .* 3 jobs run on what is"):
            start()
    start()
    assert "TaskManager-1 ended" in start.messages[0]
    assert "restarting the whole cluster" in start.messages[0]
    assert running(folder) == NAMES
