"""Exchange messages between the workers of a job, in addition to TensorFlow's collectives.

Each worker has a TCP connection to the chief and sends lines of JSON (see `cluster`). So a
worker that differs is reported before the first collective, which would hang, and a worker that is
lost is detected while the main thread waits in one. A process that trains alone has
`SINGLE_PROCESS`.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType

from absl import logging

from trainer_module.common.differences import differences, summarize_differences
from trainer_module.common.tensors import Json
from trainer_module.devices.cluster import (
    EXIT_WORKER_LOST,
    Cluster,
    Message,
    WorkerLost,
    check_own_port,
    cluster_of_environment,
    connect_all,
    send,
    worker_name,
)

# Time between the log message and the exit of a process whose main thread hangs.
_SECONDS_TO_END = 10.0
_LONGEST_BEAT = 2.0


class Disagreement(ValueError):
    """Workers of one training differ in settings, software, code or data."""


class WorkerGroup:
    """The workers of one job; number 0 is the chief. Without connections, a process that is alone.

    The main thread sends and waits, a thread for each connection reads, and another one sends signs
    of life and ends the process.
    """

    number = 0
    size = 1

    def __init__(
        self,
        cluster: Cluster | None = None,
        connections: Mapping[int, socket.socket] | None = None,
        timeout_seconds: float = 60.0,
    ) -> None:
        """Begin to read from the connections of `connect_all`, if there are any."""
        self._cluster = cluster
        self._connections = dict(connections or {})
        self._timeout_seconds = timeout_seconds
        self._changed = threading.Condition()
        self._sending = {number: threading.Lock() for number in self._connections}
        self._failure: str | None = None
        self._reported = threading.Event()  # the main thread has the failure
        self._on_lost: list[Callable[[str], None]] = []
        self._call = 0
        self._received: dict[int, dict[int, Message]] = {}  # call -> worker -> message
        self._ended: set[int] = set()
        self._closed = False
        if cluster is None:
            return
        self.number, self.size = cluster.number, len(cluster.workers)
        for connection in self._connections.values():
            connection.settimeout(timeout_seconds)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in self._connections:
            threading.Thread(target=self._read, args=[number], daemon=True).start()
        threading.Thread(target=self._watch, daemon=True).start()
        atexit.register(self.leave)

    @property
    def is_chief(self) -> bool:
        """Whether this worker writes checkpoints and exports."""
        return self.number == 0

    def name(self, number: int) -> str:
        """Return the name of a worker for messages."""
        return "this process" if self._cluster is None else worker_name(number, self._cluster)

    def barrier(self, what: str) -> None:
        """Wait until all workers have called this method."""
        self.gather(what, None)

    def broadcast_from_chief(self, what: str, value: Json) -> Json:
        """Return the chief's value on each worker."""
        return self.gather(what, value if self.is_chief else None)[0]

    def assert_same_on_all_workers(self, what: str, values: Mapping[str, Json]) -> None:
        """Raise an error on all workers if the JSON values of one differ from the chief's.

        Raises:
            Disagreement: The message has the worker, each difference and both values.
        """
        if self.size == 1:
            return
        ours, *others = self.gather(what, dict(values))
        found = []
        for number, theirs in enumerate(others, 1):
            different = differences(
                theirs, ours, text="{name} is {there} there and {here} on " + self.name(0)
            )
            if different:
                found.append(f"{self.name(number)}: {summarize_differences(different)}")
        if found:
            raise Disagreement(
                f"the workers differ in their {what}, so they cannot train one model together. "
                f"{' | '.join(found)}. Start all workers with the same."
            )

    def gather(self, what: str, value: Json) -> list[Json]:
        """Return the values of all workers, by number; `what` names the call in error messages.

        All workers must make the same calls in the same order.

        Raises:
            WorkerLost: A worker failed, ended or is unreachable.
        """
        if self.size == 1:
            return [value]
        if self._closed:
            raise WorkerLost(
                f"{self.name(self.number)} has closed its connections and cannot call {what!r}. "
                "After an error, restart all workers."
            )
        call, self._call = self._call, self._call + 1
        if not self.is_chief:
            self._send(0, {"turn": call, "what": what, "value": value})
            return self._wait_for(call, what)[0]["values"]
        received = self._wait_for(call, what)
        for number, message in sorted(received.items()):
            if message["what"] != what:
                self._fail(
                    f"{self.name(number)} is at {message['what']!r} and {self.name(0)} at {what!r}:"
                    " they do not run the same program. Start the same program on all workers."
                )
                self._raise()
        values = [value, *(received[number]["value"] for number in sorted(received))]
        for number in self._connections:
            self._send(number, {"turn": call, "what": what, "values": values})
        return json.loads(json.dumps(values))  # as the others receive it: tuples become lists

    def as_worker_lost(self, error: BaseException) -> BaseException:
        """Return `WorkerLost` if a lost worker caused a collective's error, otherwise the error."""
        if self.size == 1:
            return error
        with self._changed:  # a collective may fail before the closed connection is detected
            self._changed.wait_for(lambda: self._failure is not None, timeout=_SECONDS_TO_END / 2)
        if self._failure is None:
            return error
        self._reported.set()
        return WorkerLost(self._failure)

    def on_worker_lost(self, action: Callable[[str], None]) -> None:
        """Call `action` with the message, in another thread, when a worker is lost."""
        self._on_lost.append(action)

    @contextlib.contextmanager
    def reporting_failures(self) -> Iterator[None]:
        """Report an exception in the block to the other workers, which then end, too."""
        try:
            yield
        except Exception as error:
            self.leave(error)
            is_translated = isinstance(error, (WorkerLost, Disagreement))
            if self._failure is not None and not is_translated:  # a consequence of the lost worker
                self._reported.set()
                raise WorkerLost(self._failure) from error
            raise

    def leave(self, error: BaseException | None = None) -> None:
        """Report to the others that this worker ends, or why it fails, before connections close."""
        if self._closed or self.size == 1:
            return
        self._closed = True
        message: Message = {"left": None}
        if error is not None and not isinstance(error, (WorkerLost, Disagreement)):
            message = {"failed": f"{type(error).__name__}: {error}"}
        self._send_to_all(message)
        for connection in self._connections.values():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)

    def _wait_for(self, call: int, what: str) -> dict[int, Message]:
        """Return the message of each connected worker for this call."""
        with self._changed:
            while True:
                received = self._received.setdefault(call, {})
                if len(received) == len(self._connections):
                    return self._received.pop(call)
                if gone := self._ended - received.keys():
                    names = ", ".join(map(self.name, sorted(gone)))
                    self._fail(f"{names} ended while {self.name(self.number)} was at {what!r}.")
                if self._failure is not None:
                    self._raise()
                self._changed.wait()

    def _raise(self) -> None:
        self._reported.set()
        raise WorkerLost(self._failure)

    def _send(self, number: int, message: Message) -> None:
        if self._failure is not None:
            self._raise()
        try:
            with self._sending[number]:
                send(self._connections[number], message)
        except OSError:
            # The reading thread knows the reason, or will in a moment.
            with self._changed:
                self._changed.wait_for(lambda: self._failure or self._ended, timeout=1.0)
            self._fail(f"{self.name(number)} is lost: its connection is closed.")
            self._raise()

    def _send_to_all(self, message: Message) -> None:
        for number in self._connections.keys() - self._ended:
            with contextlib.suppress(OSError), self._sending[number]:
                send(self._connections[number], message)

    def _watch(self) -> None:
        """Send heartbeats until a worker is lost, then end this process."""
        beat = min(_LONGEST_BEAT, self._timeout_seconds / 4)
        ends = False
        while not ends and not self._closed:
            for number in self._connections.keys() - self._ended:
                # Another message that is being sent serves as one, too.
                if self._sending[number].acquire(blocking=False):
                    with contextlib.suppress(OSError):
                        send(self._connections[number], {})
                    self._sending[number].release()
            with self._changed:
                ends = self._changed.wait_for(lambda: self._failure is not None, timeout=beat)
        if ends and not self._closed:
            self._end()

    def _read(self, number: int) -> None:
        """Read the messages of a worker until it ends or is lost."""
        problem = "is lost: its process ended; see its log."
        try:
            for line in self._connections[number].makefile("rb"):
                self._handle(number, json.loads(line))
        except TimeoutError:
            problem = (
                f"has been silent for {self._timeout_seconds:g} s (worker_timeout_seconds): it is "
                "stopped, or its machine or the network is down."
            )
        except (OSError, ValueError):  # ValueError: it ended within a line
            pass
        if number not in self._ended:
            self._fail(f"{self.name(number)} {problem}")

    def _handle(self, number: int, message: Message) -> None:
        if "turn" in message:
            with self._changed:
                self._received.setdefault(message["turn"], {})[number] = message
                self._changed.notify_all()
        elif "left" in message:
            with self._changed:
                self._ended.add(number)
                self._changed.notify_all()
        elif "failed" in message:
            self._fail(f"{self.name(number)} failed: {message['failed']}")
        elif "lost" in message:  # another worker, as the chief reports
            self._fail(message["lost"])

    def _fail(self, message: str) -> None:
        """Keep the first reason why training cannot continue; the chief gives it to the others."""
        with self._changed:
            if self._failure is not None or self._closed:
                return
            self._failure = message
            self._changed.notify_all()
        if self.is_chief:
            self._send_to_all({"lost": message})

    def _end(self) -> None:
        """End this process: by an exception in the main thread, or by exit if that thread hangs."""
        assert self._failure is not None
        logging.error("Training ends: %s", self._failure)
        for action in self._on_lost:
            with contextlib.suppress(Exception):
                action(self._failure)
        if not self._reported.wait(_SECONDS_TO_END):
            name = self.name(self.number)
            _exit(f"{self._failure}\n(code {EXIT_WORKER_LOST}; the main thread of {name} hangs)")


def _exit(message: str) -> None:
    """End the process without waiting for TensorFlow, which may wait for the lost worker."""
    sys.stdout.flush()
    sys.stderr.write(f"Training ends: {message}\n")
    sys.stderr.flush()
    os._exit(EXIT_WORKER_LOST)


SINGLE_PROCESS = WorkerGroup()
_workers = SINGLE_PROCESS


def current_workers() -> WorkerGroup:
    """Return the workers of this process's job: `SINGLE_PROCESS` before `connect_workers`."""
    return _workers


def connect_workers(*, start_timeout_seconds: float, worker_timeout_seconds: float) -> WorkerGroup:
    """Return the workers in TF_CONFIG once all are connected; later calls return the same.

    For one worker or none, return `SINGLE_PROCESS`. Call it before TensorFlow's server starts. A
    worker may be silent for `worker_timeout_seconds`.

    Raises:
        WorkerLost: Not all workers connected in time.
        ValueError: TF_CONFIG is wrong, or differs between workers.
    """
    global _workers
    cluster = cluster_of_environment()
    if _workers is not SINGLE_PROCESS or cluster is None or len(cluster.workers) < 2:
        return _workers
    logging.info(
        "%s of %d waits for the others", worker_name(cluster.number, cluster), len(cluster.workers)
    )
    connections = connect_all(cluster, start_timeout_seconds)
    workers = WorkerGroup(cluster, connections, worker_timeout_seconds)
    with workers.reporting_failures():
        check_own_port(cluster)
    _report_uncaught_errors(workers)
    _workers = workers
    return workers


def _report_uncaught_errors(workers: WorkerGroup) -> None:
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        if type(error).__module__.startswith("tensorflow"):  # a lost worker may be the cause
            error = workers.as_worker_lost(error)
        workers.leave(error)
        if isinstance(error, WorkerLost):
            _exit(str(error))

    sys.excepthook = hook
