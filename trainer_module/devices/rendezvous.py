"""How the workers of a job find each other: by the chief's own address in TF_CONFIG.

The chief listens on its address before TensorFlow's server does. The connections that workers make
to it last: only the listening ends, and Linux lets TensorFlow's server listen on a port that has
connections and no listener, where both sides set SO_REUSEADDR, as it does. So no second port has
to be configured, opened or guessed.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import socket
import time
from typing import Any

from trainer_module.devices.cluster import Cluster

_PROTOCOL = 1
_SECONDS_FOR_HELLO = 5.0
_SECONDS_BETWEEN_TRIES = 0.2
_LONGEST_LINE = 1 << 20


class WorkerLost(RuntimeError):
    """A worker never came, has gone or failed: training cannot go on without it."""


def worker_name(number: int, cluster: Cluster) -> str:
    """Returns "chief" or "worker 1", as the launcher and TF_CONFIG call it, with its address."""
    role, index, address = cluster.workers[number]
    return f"{'chief' if role == 'chief' else f'{role} {index}'} ({address})"


def meet(cluster: Cluster, timeout_seconds: float) -> dict[int, socket.socket]:
    """Returns a connection to each other worker on the chief, to the chief on others.

    Raises:
        WorkerLost: Not all came in time; who is missing is named on each that did.
        ValueError: Their TF_CONFIGs are of different clusters.
    """
    deadline = time.monotonic() + timeout_seconds
    if cluster.number == 0:
        return _gather(cluster, deadline, timeout_seconds)
    return {0: _join(cluster, deadline, timeout_seconds)}


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    """Writes a message as a line of JSON."""
    connection.sendall(json.dumps(message).encode() + b"\n")


def _gather(cluster: Cluster, deadline: float, timeout_seconds: float) -> dict[int, socket.socket]:
    found: dict[int, socket.socket] = {}
    expected = range(1, len(cluster.workers))
    try:
        with _listen(cluster.workers[0][2]) as listener:
            while len(found) < len(expected):
                left = deadline - time.monotonic()
                if left <= 0:
                    missing = [worker_name(n, cluster) for n in expected if n not in found]
                    raise WorkerLost(
                        f"{', '.join(missing)} did not come within {timeout_seconds:g} s "
                        "(trainer.start_timeout_seconds): see its log, whether it started at all, "
                        "and whether it reaches "
                        f"{cluster.workers[0][2]}; then start all workers again."
                    )
                listener.settimeout(left)
                with contextlib.suppress(TimeoutError):
                    connection, _ = listener.accept()
                    number = _welcome(connection, cluster)
                    if number is None or number in found:
                        connection.close()
                    else:
                        found[number] = connection
    except BaseException as error:
        for connection in found.values():
            with contextlib.suppress(OSError):
                kind = "lost" if isinstance(error, WorkerLost) else "refused"
                send(connection, {kind: str(error)})
            connection.close()
        raise
    for connection in found.values():
        send(connection, {"start": True})
    return found


def _welcome(connection: socket.socket, cluster: Cluster) -> int | None:
    """Returns the number of the worker that called; None where it was no worker."""
    connection.settimeout(_SECONDS_FOR_HELLO)
    hello = _read(connection)
    if hello is None or hello.get("crew") != _PROTOCOL:
        return None
    theirs = [tuple(worker) for worker in hello["workers"]]
    number = int(hello["number"])
    if theirs != list(cluster.workers):
        words = (
            f"worker number {number} has a TF_CONFIG with {len(theirs)} workers "
            f"({', '.join(address for *_, address in theirs)}), the chief one with "
            f"{len(cluster.workers)} ({', '.join(address for *_, address in cluster.workers)}): "
            "give all the same cluster."
        )
        with contextlib.suppress(OSError):
            send(connection, {"refused": words})
        connection.close()
        raise ValueError(words)
    return number


def _join(cluster: Cluster, deadline: float, timeout_seconds: float) -> socket.socket:
    host, _, port = cluster.workers[0][2].rpartition(":")
    hello = {"crew": _PROTOCOL, "number": cluster.number, "workers": cluster.workers}
    seen = "no one listens there"
    while (left := deadline - time.monotonic()) > 0:
        try:
            connection = socket.create_connection((host.strip("[]"), int(port)), timeout=left)
        except OSError as error:
            seen = str(error)
            time.sleep(_SECONDS_BETWEEN_TRIES)
            continue
        answer = None
        # A port of one's own machine where no one listens may connect to itself.
        if connection.getsockname() != connection.getpeername():
            with contextlib.suppress(OSError):
                send(connection, hello)
                # The chief, which has begun at the latest now, gives up first and says for whom.
                connection.settimeout(timeout_seconds + _SECONDS_FOR_HELLO)
                answer = _read(connection)
        if answer is not None and "start" in answer:
            return connection
        connection.close()
        if answer is not None and "refused" in answer:
            raise ValueError(answer["refused"])
        if answer is not None and "lost" in answer:
            raise WorkerLost(answer["lost"])
        seen = "who listens there does not begin a training; another run may be under way"
        time.sleep(_SECONDS_BETWEEN_TRIES)
    raise WorkerLost(
        f"{worker_name(0, cluster)} did not begin with {worker_name(cluster.number, cluster)} "
        f"within {timeout_seconds:g} s (trainer.start_timeout_seconds; {seen}): see its log, then "
        "start all workers again."
    )


def _read(connection: socket.socket) -> dict[str, Any] | None:
    """Returns one message, byte by byte: what follows it is for who reads next."""
    line = bytearray()
    try:
        while not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
            byte = connection.recv(1)
            if not byte:
                return None
            line += byte
        message = json.loads(line)
    except (OSError, ValueError):
        return None
    return message if isinstance(message, dict) else None


def _listen(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    # A name may be that of a service before this machine; TensorFlow's server takes all, too.
    try:
        place = host if ipaddress.ip_address(host).is_loopback else ""
    except ValueError:
        place = ""
    dual = not place and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual or ":" in place else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if dual:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((place, int(port)))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise WorkerLost(
            f"cannot listen on {address}, which TF_CONFIG gives to this process ({error}): another "
            "process has the port; end it, or give another one."
        ) from error
    return listener
