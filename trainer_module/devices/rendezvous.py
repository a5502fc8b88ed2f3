"""Connect the workers of a job through the chief's address in TF_CONFIG.

The chief listens on its address before TensorFlow's server does, accepts the workers and stops
listening; the connections stay open. Linux lets TensorFlow's server listen on a port that has
connections and no listener if both sides set SO_REUSEADDR, as TensorFlow does. So no second port
has to be configured, opened or guessed.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import time

from trainer_module.common.json_values import Json
from trainer_module.devices.cluster import Cluster, split_address
from trainer_module.devices.messages import (
    PROTOCOL,
    SECONDS_FOR_HELLO,
    Message,
    PendingConnections,
    read,
    send,
)

_SECONDS_BETWEEN_TRIES = 0.2


class WorkerLost(RuntimeError):
    """A worker failed, ended or never connected: training cannot continue without it."""


def worker_name(number: int, cluster: Cluster) -> str:
    """Return "chief" or "worker 1", as in TF_CONFIG and the launcher's output, and its address."""
    role, index, address = cluster.workers[number]
    return f"{'chief' if role == 'chief' else f'{role} {index}'} ({address})"


def connect_all(cluster: Cluster, timeout_seconds: float) -> dict[int, socket.socket]:
    """Return connections by worker number: to all others on the chief, to the chief on the others.

    Raises:
        WorkerLost: Not all workers connected in time. The message names the missing ones.
        ValueError: The workers have different clusters in TF_CONFIG.
    """
    deadline = time.monotonic() + timeout_seconds
    if cluster.number == 0:
        return _accept_workers(cluster, deadline, timeout_seconds)
    return {0: _connect_to_chief(cluster, deadline, timeout_seconds)}


def check_own_port(cluster: Cluster) -> None:
    """Check that TensorFlow's server can listen on the address of this task.

    Raises:
        ValueError: Another program uses the port.
    """
    try:
        _listen(cluster.addresses[cluster.role][cluster.index], "").close()
    except WorkerLost as error:
        # TensorFlow's server decides about other errors, such as a machine without IPv6.
        if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE:
            raise ValueError(str(error)) from error


def _accept_workers(
    cluster: Cluster, deadline: float, timeout_seconds: float
) -> dict[int, socket.socket]:
    found: dict[int, socket.socket] = {}
    processes: dict[int, Json] = {}
    chief = cluster.workers[0][2]
    try:
        with _listen(chief, _interface(chief)) as listener, PendingConnections(listener) as pending:
            while missing := [n for n in range(1, len(cluster.workers)) if n not in found]:
                left = deadline - time.monotonic()
                if left <= 0:
                    names = ", ".join(worker_name(number, cluster) for number in missing)
                    raise WorkerLost(
                        f"{names} did not start within start_timeout_seconds={timeout_seconds:g}: "
                        f"see its log, whether it started at all, and whether it reaches {chief}; "
                        "then start all workers again."
                    )
                for connection, hello in pending.wait(left):
                    number, process = (
                        _accept_worker(connection, hello, cluster),
                        hello.get("process"),
                    )
                    if number in found and process != processes[number] and _is_open(found[number]):
                        found[-1] = connection  # so that it gets the error, too
                        raise ValueError(
                            _same_task_message(number, cluster, processes[number], process)
                        )
                    if number in found:  # it reconnected or was restarted
                        found[number].close()
                    found[number], processes[number] = connection, process
    except BaseException as error:
        for connection in found.values():
            with contextlib.suppress(OSError):
                kind = "lost" if isinstance(error, WorkerLost) else "refused"
                send(connection, {kind: str(error)})
            connection.close()
        raise
    for connection in found.values():
        connection.setblocking(True)
        with contextlib.suppress(OSError):  # already lost: its reader reports it
            send(connection, {"start": True})
    return found


def _accept_worker(connection: socket.socket, hello: Message, cluster: Cluster) -> int:
    """Return the number of the worker; raise an error if it has another cluster."""
    theirs = [tuple(worker) for worker in hello["workers"]]
    number = int(hello["number"])
    if theirs != list(cluster.workers):
        message = (
            f"worker number {number} has a TF_CONFIG with {len(theirs)} workers "
            f"({', '.join(address for *_, address in theirs)}), the chief one with "
            f"{len(cluster.workers)} ({', '.join(address for *_, address in cluster.workers)}): "
            "give all the same cluster."
        )
        with contextlib.suppress(OSError):
            send(connection, {"refused": message})
        connection.close()
        raise ValueError(message)
    return number


def _same_task_message(number: int, cluster: Cluster, first: Json, second: Json) -> str:
    return (
        f"two processes say that they are {worker_name(number, cluster)}: {first} and {second}. "
        "Give each its own task.index in TF_CONFIG."
    )


def _is_open(connection: socket.socket) -> bool:
    """Return whether the other side still has the connection and has sent nothing more on it."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def _connect_to_chief(cluster: Cluster, deadline: float, timeout_seconds: float) -> socket.socket:
    chief = split_address(cluster.workers[0][2])
    hello = {
        "protocol": PROTOCOL,
        "number": cluster.number,
        "workers": cluster.workers,
        "process": f"process {os.getpid()} of {socket.gethostname()}",
    }
    seen = "nothing listens there"
    while (left := deadline - time.monotonic()) > 0:
        try:
            connection = socket.create_connection(chief, timeout=left)
        except OSError as error:
            seen = str(error)
            time.sleep(_SECONDS_BETWEEN_TRIES)
            continue
        answer = None
        # A connection to a free port of this machine may connect to itself.
        if connection.getsockname() != connection.getpeername():
            with contextlib.suppress(OSError):
                send(connection, hello)
                answer = read(connection, min(SECONDS_FOR_HELLO, left))
                if answer is not None and "heard" in answer:
                    # The chief, which has started by now, times out first and names the missing
                    # workers.
                    answer = read(connection, timeout_seconds + SECONDS_FOR_HELLO)
        if answer is not None and "start" in answer:
            connection.settimeout(None)
            return connection
        connection.close()
        if answer is not None and "refused" in answer:
            raise ValueError(answer["refused"])
        if answer is not None and "lost" in answer:
            raise WorkerLost(answer["lost"])
        seen = "another program or another run listens there"
        time.sleep(_SECONDS_BETWEEN_TRIES)
    raise WorkerLost(
        f"{worker_name(0, cluster)} did not start with {worker_name(cluster.number, cluster)} "
        f"within start_timeout_seconds={timeout_seconds:g} ({seen}): see its log, then start all "
        "workers again."
    )


def _interface(address: str) -> str:
    """Return the interface to listen on; "" is all of them, as for TensorFlow's server.

    A host name may belong to a service in front of this machine.
    """
    host, _ = split_address(address)
    try:
        return host if ipaddress.ip_address(host).is_loopback else ""
    except ValueError:
        return ""


def _listen(address: str, interface: str) -> socket.socket:
    _, port = split_address(address)
    dual = not interface and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual or ":" in interface else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if dual:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((interface, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise WorkerLost(
            f"cannot listen on {address}, which TF_CONFIG gives to this process ({error}): another "
            "process uses the port. End that process, or use another port."
        ) from error
    return listener
