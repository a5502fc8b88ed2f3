"""Failed starts: each worker exits with a message within the start timeout.

Each with real processes, whose TF_CONFIG the test writes.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from on_workers import command, environment

pytestmark = pytest.mark.distributed

# Of a start that cannot succeed: processes wait so long.
TIMEOUT = 6.0
# Of a start that succeeds, or fails by a message: processes may start far apart on a busy machine.
PATIENT = 240.0
# Of a busy machine: Python's start, and the end of a process whose main thread hangs.
SLACK = 300.0


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in found]


def config(addresses: list[str], index: int) -> str:
    task = {"type": "worker", "index": index}
    return json.dumps({"cluster": {"worker": addresses}, "task": task})


def local(ports: list[int]) -> list[str]:
    return [f"127.0.0.1:{port}" for port in ports]


def ended(
    configs: list[str], case: str = "meets", timeout: float = TIMEOUT
) -> list[tuple[int, str]]:
    """Return code and output of a process for each TF_CONFIG; all end within the time-out."""
    processes = [
        subprocess.Popen(
            command("starts", case, timeout),
            env=environment(TF_CONFIG=each),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for each in configs
    ]
    deadline = time.monotonic() + timeout + SLACK
    try:
        found = []
        for process in processes:
            output, _ = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            found.append((process.returncode, output))
        return found
    finally:
        for process in processes:
            process.kill()


class _Quiet(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def other_program() -> Iterator[int]:
    """Something that is no worker listens at the yielded port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.parametrize("number", [0, 1])
def test_another_program_on_a_workers_port(number):
    with other_program() as port:
        addresses = local(free_ports(1))
        addresses.insert(number, f"127.0.0.1:{port}")
        timeout = PATIENT if number else TIMEOUT  # worker 1 reports to the chief why it ends
        found = ended([config(addresses, index) for index in range(2)], timeout=timeout)
    code, text = found[number]
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}, which TF_CONFIG gives to this process" in text
    code, text = found[1 - number]
    assert code in (1, 75)
    if number == 0:
        assert f"worker 0 (127.0.0.1:{port}) did not start with worker 1" in text
        assert "another program or another run listens there" in text
    else:
        assert f"worker 1 (127.0.0.1:{port}) failed: ValueError: cannot listen" in text


def test_two_tasks_with_the_same_index():
    """The two processes of a worker are in tests/trainer_module/devices/test_cluster.py."""
    # Two chiefs on one machine, and none.
    addresses = local(free_ports(2))
    (one, text), (two, more) = ended([config(addresses, 0)] * 2)
    assert one == two == 1
    assert "cannot listen on" in text + more
    assert "worker 1 (" in text + more
    for code, text in ended([config(addresses, 1)] * 2):
        assert code == 1
        assert "worker 0 (127.0.0.1:" in text


def test_a_worker_that_is_killed_right_after_all_have_met():
    """While TensorFlow's servers and collectives start on the others."""
    addresses = local(free_ports(2))
    # TensorFlow is loaded first, which takes its time on a busy machine.
    configs = [config(addresses, index) for index in range(2)]
    found = ended(configs, "trains:200", timeout=120)
    assert found[1][0] == -9
    code, text = found[0]
    assert code == 75, text
    assert f"worker 1 ({addresses[1]}) is lost: its process ended; see its log." in text
