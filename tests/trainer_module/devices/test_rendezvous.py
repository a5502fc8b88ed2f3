"""How the chief accepts workers, by real connections within this process."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from trainer_module.devices import rendezvous
from trainer_module.devices.cluster import Cluster
from trainer_module.devices.rendezvous import _PROTOCOL, _read, connect_all, send

SECONDS = 60.0  # longer than any test takes


@pytest.fixture
def cluster() -> Cluster:
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        addresses = tuple(f"127.0.0.1:{each.getsockname()[1]}" for each in found)
    return Cluster({"worker": addresses}, "worker", 0)


@pytest.fixture
def chief(cluster) -> Iterator[Future[Any]]:
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(connect_all, cluster, SECONDS)


@pytest.fixture
def call(cluster, chief):
    """A function from a worker's number and process to its accepted connection."""
    with contextlib.ExitStack() as stack:

        def connect() -> socket.socket:
            host, _, port = cluster.workers[0][2].rpartition(":")
            while not chief.done():
                with contextlib.suppress(ConnectionRefusedError):
                    return stack.enter_context(socket.create_connection((host, int(port))))
            raise AssertionError(chief.result())

        def called(number: int, process: str) -> socket.socket:
            connection = connect()
            hello = {"protocol": _PROTOCOL, "number": number, "process": process}
            send(connection, {**hello, "workers": cluster.workers})
            return connection

        called.connect = connect  # type: ignore[attr-defined]
        yield called


def test_all_workers_start_with_blocking_connections(chief, call):
    started = [call(number, f"process {number}") for number in (2, 1)]
    assert [_read(each, SECONDS) for each in started] == [{"start": True}] * 2
    connections = chief.result()
    assert sorted(connections) == [1, 2]
    assert all(each.gettimeout() is None for each in connections.values())


@pytest.mark.parametrize("second", ["the same process", "a process after it"])
def test_a_worker_may_connect_again(second, chief, call):
    """A process that did not hear an answer in time, and one that replaces an ended process."""
    first = call(1, "the same process")
    time.sleep(0.5)  # the chief reads what it says
    if second != "the same process":
        first.close()
    again = call(1, second)
    other = call(2, "another process")
    assert [_read(each, SECONDS) for each in (again, other)] == [{"start": True}] * 2
    assert sorted(chief.result()) == [1, 2]


def test_two_processes_of_one_task_are_rejected(chief, call):
    both = [call(1, "one process"), call(1, "another process")]
    for each in both:
        answer = _read(each, SECONDS)
        assert answer is not None
        assert "two processes say that they are worker 1" in answer["refused"]
    with pytest.raises(ValueError, match=r"one process and another|another process and one"):
        chief.result()


def test_connections_without_a_message_or_with_a_long_one_are_closed(chief, call, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(rendezvous, "_SECONDS_FOR_HELLO", 0.2)
        silent, endless = call.connect(), call.connect()
        with contextlib.suppress(OSError):
            endless.sendall(b"x" * (rendezvous._LONGEST_LINE + 1))
        for each in (silent, endless):
            each.settimeout(SECONDS)
            with contextlib.suppress(ConnectionResetError):
                assert each.recv(1) == b""
    # The others have the usual time.
    started = [call(number, f"process {number}") for number in (1, 2)]
    assert [_read(each, SECONDS) for each in started] == [{"start": True}] * 2
    chief.result()


def test_a_line_sent_byte_by_byte_is_read_until_the_deadline():
    """Each byte is in time; the line is not."""
    here, there = socket.socketpair()
    with here, there, ThreadPoolExecutor(1) as pool:
        found = pool.submit(_read, here, 0.5)
        for _ in range(200):  # 10 s
            if found.done():
                break
            there.send(b" ")
            with contextlib.suppress(TimeoutError):
                found.result(0.05)
        in_time = found.done()
        there.send(b"\n")
        assert in_time
        assert found.result() is None
