"""Read the tasks of a job from TF_CONFIG, and connect its workers, without TensorFlow.

Workers send lines of JSON over TCP to the chief's address in TF_CONFIG. The chief listens on it
before TensorFlow's server does, accepts the workers and stops listening; the connections stay open.
Linux lets TensorFlow's server listen on a port that has connections and no listener if both sides
set SO_REUSEADDR, as TensorFlow does. So no second port has to be configured, opened or guessed.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import itertools
import json
import os
import socket
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shared_core.nearest import nearest
from trainer_module.common.tensors import Json

# Exit code of a process that ends because another one was lost. EX_TEMPFAIL of sysexits.h: the
# process has no error, and a restart may succeed.
EXIT_WORKER_LOST = 75

_ROLES = ("chief", "worker", "ps")
_PROTOCOL = 6  # value of "protocol" in a worker's first message
_SECONDS_FOR_HELLO = 2.0  # those who wait meanwhile are not lost
_SECONDS_BETWEEN_TRIES = 0.2
_LONGEST_LINE = 1 << 20


@dataclass(frozen=True)
class Cluster:
    """The tasks of a job, and the task of this process."""

    addresses: Mapping[str, tuple[str, ...]]  # role to the `host:port` of each of its tasks
    role: str
    index: int  # number of this process among those of its role

    @property
    def workers(self) -> tuple[tuple[str, int, str], ...]:
        """(role, index, address) of all tasks that train together: the chief, if any, first."""
        return tuple(
            (role, index, address)
            for role in ("chief", "worker")
            for index, address in enumerate(self.addresses.get(role, ()))
        )

    @property
    def number(self) -> int:
        """Index of this process in `workers`; replicas are numbered in that order."""
        for number, (role, index, _) in enumerate(self.workers):
            if (role, index) == (self.role, self.index):
                return number
        raise ValueError(
            f"TF_CONFIG says that this process is {self.role} {self.index}, and its cluster has "
            f"{', '.join(f'{len(a)} {role}' for role, a in self.addresses.items()) or 'no task'}: "
            "a task that trains is one of its chief and workers."
        )

    @property
    def has_parameter_servers(self) -> bool:
        """Whether variables are on parameter servers."""
        return bool(self.addresses.get("ps"))

    @property
    def is_served(self) -> bool:
        """Whether this process is a worker or parameter server that a chief controls."""
        return self.has_parameter_servers and self.role != "chief"

    def tf_config(self) -> str:
        """Return the value of TF_CONFIG for this task."""
        tasks = {role: list(found) for role, found in self.addresses.items()}
        return json.dumps({"cluster": tasks, "task": {"type": self.role, "index": self.index}})


def cluster_of_environment(environment: Mapping[str, str] = os.environ) -> Cluster | None:
    """Return the cluster of TF_CONFIG, or None if it names no task: one process trains alone."""
    text = environment.get("TF_CONFIG") or "{}"
    try:
        config = json.loads(text)
        tasks = config.get("cluster") or {}
        if not tasks:
            return None
        addresses = {role: tuple(_addresses(found)) for role, found in tasks.items()}
        task = config["task"]
        cluster = Cluster(addresses, str(task["type"]), _task_index(task["index"]))
        _check_tasks(cluster)
        return cluster
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        what = error if type(error) is ValueError else f"{type(error).__name__}: {error}"
        raise ValueError(
            f"TF_CONFIG={text!r} is not a cluster and a task ({what}): "
            'give {"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", '
            '"index": 0}}, or unset it to train in one process.'
        ) from None


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of `host:port`, without the brackets of an IPv6 address."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _addresses(found: Json) -> Sequence[str]:
    if isinstance(found, Mapping):  # TensorFlow allows index -> address, with gaps
        found = [found[key] for key in sorted(found, key=int)]
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError(f"{found!r} is not a list of addresses")
    return found


def _task_index(value: Json) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError(f"task.index={value!r} is not a whole number")
    return int(value)


def _check_tasks(cluster: Cluster) -> None:
    """Raise ValueError for a cluster whose tasks would wait for each other forever."""
    for role in cluster.addresses:
        if role not in (*_ROLES, "evaluator"):
            raise ValueError(f"cluster.{role} is not a role: {nearest(role, _ROLES)}")
    if len(cluster.addresses.get("chief", ())) > 1:
        raise ValueError("cluster.chief has several addresses: use one")
    for address, times in Counter(itertools.chain(*cluster.addresses.values())).items():
        if times > 1:
            raise ValueError(f"address {address!r} is there {times} times: give each task its own")
        _, _, port = address.rpartition(":")
        if not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
            raise ValueError(f"address {address!r} is not host:port with a port from 1 to 65535")
    there = cluster.addresses.get(cluster.role)
    if there is None and cluster.role != "evaluator":
        raise ValueError(
            f"task.type={cluster.role!r} is not in the cluster: "
            f"{nearest(cluster.role, cluster.addresses)}"
        )
    if there is not None and not 0 <= cluster.index < len(there):
        raise ValueError(
            f"task.index={cluster.index}, and cluster.{cluster.role} has {len(there)}: use a "
            f"number from 0 to {len(there) - 1}"
        )


Message = dict[str, Json]


class WorkerLost(RuntimeError):
    """A worker failed, ended or never connected: training cannot continue without it."""


def worker_name(number: int, cluster: Cluster) -> str:
    """Return "chief" or "worker 1", as in TF_CONFIG and the launcher's output, and its address."""
    role, index, address = cluster.workers[number]
    return f"{'chief' if role == 'chief' else f'{role} {index}'} ({address})"


def send(connection: socket.socket, message: Message) -> None:
    """Send a message as a line of JSON."""
    connection.sendall(json.dumps(message).encode() + b"\n")


def _read(connection: socket.socket, seconds: float) -> Message | None:
    """Return one message, read byte by byte: the next reader gets what follows it."""
    line = bytearray()
    deadline = time.monotonic() + seconds
    try:
        while not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            byte = connection.recv(1)
            if not byte:
                return None
            line += byte
        message = json.loads(line)
    except (OSError, ValueError):
        return None
    return message if isinstance(message, dict) else None


def connect_all(cluster: Cluster, timeout_seconds: float) -> dict[int, socket.socket]:
    """Return connections by worker number: to all others on the chief, to the chief on the others.

    Raises:
        WorkerLost: Not all workers connected in time. The message names the missing ones.
        ValueError: The workers have different clusters in TF_CONFIG, or two the same task.
    """
    if cluster.number == 0:
        return _accept_workers(cluster, timeout_seconds)
    return {0: _connect_to_chief(cluster, timeout_seconds)}


def check_own_port(cluster: Cluster) -> None:
    """Check that TensorFlow's server can listen on the address of this task."""
    try:
        _listen(cluster.addresses[cluster.role][cluster.index], "").close()
    except WorkerLost as error:
        # TensorFlow's server decides about other errors, such as a machine without IPv6.
        if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE:
            raise ValueError(str(error)) from error


def _accept_workers(cluster: Cluster, timeout_seconds: float) -> dict[int, socket.socket]:
    deadline = time.monotonic() + timeout_seconds
    chief = cluster.workers[0][2]
    found: dict[int, socket.socket] = {}
    processes: dict[int, str] = {}
    try:
        with _listen(chief, _interface(chief)) as listener:
            listener.settimeout(_SECONDS_BETWEEN_TRIES)
            while missing := [n for n in range(1, len(cluster.workers)) if n not in found]:
                if time.monotonic() > deadline:
                    names = ", ".join(worker_name(number, cluster) for number in missing)
                    raise WorkerLost(
                        f"{names} did not start within start_timeout_seconds={timeout_seconds:g}: "
                        f"see its log, whether it started at all, and whether it reaches {chief}; "
                        "then start all workers again."
                    )
                try:
                    connection, _ = listener.accept()
                except OSError:  # a timeout too
                    continue
                hello = _read(connection, _SECONDS_FOR_HELLO)
                if hello is None or hello.get("protocol") != _PROTOCOL:
                    connection.close()  # of another program
                    continue
                connection.setblocking(False)  # for `_is_open`
                number, process = int(hello["number"]), str(hello["process"])
                before = found.get(number)
                twin = before is not None and process != processes[number] and _is_open(before)
                refusal = _refusal(cluster, hello, processes[number] if twin else None)
                if refusal is not None:
                    found[-1] = connection  # so that it gets the error, too
                    raise ValueError(refusal)
                if before is not None:  # it reconnected or was restarted
                    before.close()
                found[number], processes[number] = connection, process
    except BaseException as error:
        for connection in found.values():
            with contextlib.suppress(OSError):
                kind = "lost" if isinstance(error, WorkerLost) else "refused"
                send(connection, {kind: str(error)})
            connection.close()
        raise
    for connection in found.values():
        connection.settimeout(None)
        with contextlib.suppress(OSError):  # already lost: its reader reports it
            send(connection, {"start": True})
    return found


def _refusal(cluster: Cluster, hello: Message, other_process: str | None) -> str | None:
    """Return why the worker cannot take part; `other_process` has its task already."""
    theirs = [tuple(worker) for worker in hello["workers"]]
    number = hello["number"]
    if theirs != list(cluster.workers):
        return (
            f"worker number {number} has a TF_CONFIG with {len(theirs)} workers "
            f"({', '.join(address for *_, address in theirs)}), the chief one with "
            f"{len(cluster.workers)} ({', '.join(address for *_, address in cluster.workers)}): "
            "give all the same cluster."
        )
    if other_process is None:
        return None
    return (
        f"two processes say that they are {worker_name(number, cluster)}: {other_process} and "
        f"{hello['process']}. Give each its own task.index in TF_CONFIG."
    )


def _is_open(connection: socket.socket) -> bool:
    """Return whether the other side still has the connection and has sent nothing more on it."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def _connect_to_chief(cluster: Cluster, timeout_seconds: float) -> socket.socket:
    deadline = time.monotonic() + timeout_seconds
    chief = split_address(cluster.workers[0][2])
    hello = {
        "protocol": _PROTOCOL,
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
        answer: Message = {}
        # A connection to a free port of this machine may connect to itself.
        if connection.getsockname() != connection.getpeername():
            with contextlib.suppress(OSError):
                send(connection, hello)
                # A chief, which has started by now, times out first and names the missing workers.
                answer = _read(connection, timeout_seconds + _SECONDS_FOR_HELLO) or {}
        if "start" in answer:
            connection.settimeout(None)
            return connection
        connection.close()
        if "refused" in answer:
            raise ValueError(answer["refused"])
        if "lost" in answer:
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
