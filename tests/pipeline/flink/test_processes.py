"""Background processes are found again, distinguished and stopped with their children."""

from __future__ import annotations

import dataclasses
import sys
import time

import psutil

from pipeline.flink import processes

CHILD = (
    "import subprocess, sys, time; print('started', flush=True);"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); time.sleep(60)"
)
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('started', flush=True); time.sleep(60)"
)


def started(tmp_path, name: str, code: str) -> processes.Background:
    (tmp_path / "log").mkdir(exist_ok=True)
    background = processes.start(name, [sys.executable, "-c", code], tmp_path)
    deadline = time.monotonic() + 20
    while "started" not in (tmp_path / "log" / f"{name}.log").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return background


def test_stop_ends_children_too(tmp_path):
    background = started(tmp_path, "parent", CHILD)
    process = background.process()
    assert process is not None
    while not (children := process.children()):
        time.sleep(0.05)
    # It is found by its folder, without its children, which have the same mark.
    assert processes.started_in(tmp_path) == [background]
    assert tmp_path in processes.folders()
    processes.stop([background])
    assert background.process() is None
    assert processes.started_in(tmp_path) == []
    assert not any(child.is_running() and child.status() != "zombie" for child in children)


def test_a_process_that_ignores_sigterm_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "STOP_SECONDS", 0.5)
    background = started(tmp_path, "stubborn", STUBBORN)
    processes.stop([background])
    assert background.process() is None


def test_another_process_with_the_same_id_is_left_alone():
    mine = psutil.Process()
    other = processes.Background("old", mine.pid, mine.create_time() - 1000, "nowhere.log")
    assert other.process() is None
    processes.stop([other])  # would end this test run
    assert dataclasses.replace(other, created=mine.create_time()).process() == mine


def test_last_line_is_the_innermost_cause(tmp_path):
    log = tmp_path / "p.log"
    background = processes.Background("p", 1, 0.0, str(log))
    assert background.last_line() == "it wrote nothing"
    log.write_text(
        "12:00 INFO starting\njava.lang.RuntimeException: outer\n\tat a.B.c(B.java:1)\n"
        "Caused by: java.net.BindException: port 8081\n\tat d.E.f(E.java:2)\n\t... 5 more\n"
    )
    assert background.last_line() == "Caused by: java.net.BindException: port 8081"
    log.write_text(
        f"{log.read_text()}Terminating due to java.lang.OutOfMemoryError: Java heap space\n"
    )
    assert (
        background.last_line() == "Terminating due to java.lang.OutOfMemoryError: Java heap space"
    )
    log.write_text("Traceback (most recent call last):\n  File x\nModuleNotFoundError: no beam\n")
    assert background.last_line() == "ModuleNotFoundError: no beam"
