"""What TF_CONFIG may say, and how the chief accepts workers over connections of this process."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from trainer_module.devices import cluster as rendezvous
from trainer_module.devices.cluster import (
    _PROTOCOL,
    Cluster,
    _read,
    cluster_of_environment,
    connect_all,
    send,
)

TWO = ["a:1", "b:2"]


def read(cluster, task="worker", index=0):
    text = json.dumps({"cluster": cluster, "task": {"type": task, "index": index}})
    return cluster_of_environment({"TF_CONFIG": text})


def test_an_invalid_cluster_is_rejected():
    for cluster, task, index, message in [
        ({"worker": ["a:1", "a:1"]}, "worker", 0, r"'a:1' is there 2 times"),
        ({"worker": TWO}, "worker", 2, r"task\.index=2, and cluster\.worker has 2: .* 0 to 1"),
        ({"worker": TWO}, "worker", 1.5, r"task\.index=1\.5 is not a whole number"),
        ({"worker": TWO}, "wroker", 0, r"task\.type='wroker' .* did you mean 'worker'\?"),
        ({"wroker": TWO}, "wroker", 0, r"cluster\.wroker is not a role: did you mean 'worker'\?"),
        ({"worker": TWO, "chief": ["c:3", "d:4"]}, "chief", 0, r"cluster\.chief has several"),
        ({"worker": "a:1,b:2"}, "worker", 0, r"'a:1,b:2' is not a list of addresses"),
        ({"worker": ["a:1", "b"]}, "worker", 0, r"'b' is not host:port"),
        (["a:1", "b:2"], "worker", 0, r"AttributeError"),
    ]:
        with pytest.raises(ValueError, match=rf"is not a cluster and a task .*{message}"):
            read(cluster, task, index)


def test_invalid_text_is_rejected():
    for text in ["{", "[1]", '"worker"', '{"cluster": {"worker": ["a:1"]}}', "\0"]:
        with pytest.raises(
            ValueError, match=r"is not a cluster and a task .* or unset it to train"
        ):
            cluster_of_environment({"TF_CONFIG": text})


def test_no_cluster_is_one_process():
    for text in ["", "{}", '{"cluster": {}}', '{"task": {"type": "worker"}}']:
        assert cluster_of_environment({"TF_CONFIG": text}) is None


def test_tf_config_of_platforms_is_read():
    vertex = read({"chief": ["x-0:2222"], "worker": ["x-1:2222", "x-2:2222"]}, "worker", "1")
    assert (vertex.number, vertex.workers[2]) == (2, ("worker", 1, "x-2:2222"))
    by_index = read({"worker": {"1": "b:2", "0": "[::1]:1"}})
    assert by_index.addresses == {"worker": ("[::1]:1", "b:2")}
    eleven = read({"worker": {str(n): f"h:{n + 1}" for n in reversed(range(11))}})
    assert eleven.addresses["worker"] == tuple(f"h:{n + 1}" for n in range(11))
    assert read({"worker": TWO}, "evaluator").role == "evaluator"
    assert read({"worker": TWO, "evaluator": ["c:3"]}, "evaluator").role == "evaluator"


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
