"""Processes of a cluster on this machine: `trainer_module.launch` and its command line.

The programs here are plain Python, so that a test takes no longer than what it waits for.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from trainer_module.devices.local_cluster import WorkersFailed, describe_end, launch

pytestmark = pytest.mark.distributed

ROOT = Path(__file__).resolve().parents[2]


def program(text: str) -> list[str]:
    start = """
        import json, os, signal, socket, sys, time
        tf_config = json.loads(os.environ["TF_CONFIG"])
        role, index = tf_config["task"]["type"], tf_config["task"]["index"]
    """
    return [sys.executable, "-c", textwrap.dedent(start) + textwrap.dedent(text)]


SAVES = """
    def save(number, frame):
        print("saved", flush=True)
        sys.exit(143)
    signal.signal(signal.SIGTERM, save)
    print("ready", os.getpid(), flush=True)
    time.sleep(60)
"""


def test_each_task_gets_its_place_and_a_port_that_is_its_own():
    lines: dict[str, list[str]] = {}
    listen = """
        for role in tf_config["cluster"]:
            if role == tf_config["task"]["type"]:
                address = tf_config["cluster"][role][index]
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as TensorFlow's do
        server.bind(("0.0.0.0", int(address.rpartition(":")[2])))
        server.listen()
        print(json.dumps(tf_config), os.environ["TF_USE_LEGACY_KERAS"], os.environ["OWN"])
    """
    environment = {**os.environ, "OWN": "mine"}
    launch(
        program(listen),
        workers=2,
        parameter_servers=1,
        env=environment,
        on_line=lambda name, line: lines.setdefault(name, []).append(line),
    )
    assert set(lines) >= {"chief"}  # the others may be ended once the chief has
    config, keras, own = lines["chief"][0].rsplit(" ", 2)
    cluster = json.loads(config)["cluster"]
    assert {role: len(addresses) for role, addresses in cluster.items()} == {
        "chief": 1,
        "worker": 2,
        "ps": 1,
    }
    addresses = [address for role in cluster.values() for address in role]
    assert len(set(addresses)) == 4
    assert (keras, own) == ("0", "mine")


def test_the_first_that_fails_is_named_with_its_log_and_ends_the_others(tmp_path):
    fails = """
        print("a line of", role, index, flush=True)
        if index == 1:
            print("what went wrong", file=sys.stderr, flush=True)
            sys.exit(3)
        time.sleep(60)
    """
    with pytest.raises(WorkersFailed) as caught:
        launch(program(fails), workers=3, log_dir=tmp_path, on_line=lambda name, line: None)
    (failed,) = caught.value.failed
    assert (failed.name, failed.code, caught.value.code) == ("worker 1", 3, 3)
    assert failed.log == str(tmp_path / "worker-1.log")
    assert Path(failed.log).read_text() == "a line of worker 1\nwhat went wrong\n"
    assert "worker 1 ended with code 3; its log is" in str(caught.value)
    assert "  what went wrong" in str(caught.value)
    assert (tmp_path / "worker-0.log").read_text() == "a line of worker 0\n"


def test_the_end_of_a_process_names_signal_or_code():
    """137 is the code of SIGKILL in a shell, in coreutils' timeout, and in Kubernetes."""
    for code, said, is_memory in [(-9, "SIGKILL", True), (137, "137", True), (3, "3", False)]:
        assert said in describe_end(code)
        assert ("memory" in describe_end(code)) == is_memory


def test_a_worker_beside_servers_is_started_again(tmp_path):
    once = """
        if role == "worker" and not os.path.exists(sys.argv[1]):
            open(sys.argv[1], "w").close()
            sys.exit(1)
        time.sleep(60 if role == "ps" else 1)
        print("done", flush=True)
    """
    lines = []
    launch(
        [*program(once), str(tmp_path / "started")],
        workers=1,
        parameter_servers=1,
        worker_restarts=1,
        on_line=lambda name, line: lines.append((name, line)),
    )
    assert ("worker 0", "ended with code 1: it is started again") in lines
    assert ("chief", "done") in lines


def started(*arguments: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A launcher of two workers that are ready, and their process ids."""
    launcher = subprocess.Popen(
        [sys.executable, "-m", "trainer_module.launch", *arguments, "--", *program(SAVES)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert launcher.stdout is not None
    ready = [launcher.stdout.readline() for _ in range(2)]
    assert {line[:16] for line in ready} == {"[worker 0] ready", "[worker 1] ready"}
    return launcher, [int(line.split()[-1]) for line in ready]


def test_the_signal_that_ends_the_launcher_lets_the_workers_save():
    launcher, _ = started("--workers", "2")
    launcher.send_signal(signal.SIGINT)
    out, err = launcher.communicate(timeout=60)
    assert sorted(out.splitlines()) == ["[worker 0] saved", "[worker 1] saved"]
    assert launcher.returncode == 143
    assert "ended with code 143" in err


def test_no_orphan_outlives_a_launcher_that_is_killed():
    launcher, workers = started()
    launcher.kill()
    launcher.communicate(timeout=60)
    ends = time.monotonic() + 60
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < ends, workers
        time.sleep(0.05)


def test_help_and_a_missing_program():
    command = [sys.executable, "-m", "trainer_module.launch"]
    shown = subprocess.run([*command, "--help"], cwd=ROOT, capture_output=True, text=True)
    assert "python -m trainer_module.launch --workers 2 -- python train.py" in shown.stdout
    for option in ("--workers", "--parameter-servers", "--log-dir", "--worker-restarts"):
        assert option in shown.stdout
    nothing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert nothing.returncode == 2
    assert "give the program after --" in nothing.stderr
    with pytest.raises(ValueError, match=r"workers=0: use at least 1"):
        launch(["true"], workers=0)
