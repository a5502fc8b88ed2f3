"""What the workers of a job say to each other beside TensorFlow's collectives.

    crew = join_crew(start_timeout_seconds=60, worker_timeout_seconds=60)
    crew.agree("settings", {"seed": 3})                  # the same on all, or an error on all
    sizes = crew.gather("micro_batch_size", 64)          # [64, 128], by worker
    crew.barrier("exported")

Lines of JSON over TCP, from each worker to the chief (see `rendezvous`), so that workers can refuse
each other in words before any collective, which would hang, and notice one that has gone while the
main thread hangs in one. A process that trains alone has `ALONE`, which costs nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from absl import logging

from trainer_module.common.facts import differences, told
from trainer_module.devices.callers import send
from trainer_module.devices.cluster import EXIT_WORKER_LOST, Cluster, cluster_of_environment
from trainer_module.devices.rendezvous import WorkerLost, check_own_port, meet, worker_name

# From the words in the log to the end of a process whose main thread does not end by itself.
_SECONDS_TO_END = 10.0
_LONGEST_BEAT = 2.0


class Disagreement(ValueError):
    """Workers that are to train together differ in what decides how."""


class Crew:
    """The workers of one job; `number` 0 is the chief. This class is the one of a lone process."""

    number = 0
    size = 1

    @property
    def is_chief(self) -> bool:
        """Whether this is the one that writes what is to stay."""
        return self.number == 0

    @property
    def failure(self) -> str | None:
        """Why training cannot go on, once a worker was lost."""
        return None

    def gather(self, what: str, value: Any) -> list[Any]:
        """Returns the values of all workers, by their number, on each of them.

        Each worker calls it in the same order with the same `what`.

        Args:
            what: For error messages.
            value: As JSON.

        Raises:
            WorkerLost: One has gone, failed, or ended before.
        """
        return [value]

    def barrier(self, what: str) -> None:
        """Returns when all workers are here."""
        self.gather(what, None)

    def chosen(self, what: str, value: Any) -> Any:
        """Returns the chief's value on each worker."""
        return self.gather(what, value if self.is_chief else None)[0]

    def agree(self, what: str, facts: Mapping[str, Any]) -> None:
        """Raises on all workers where one has other facts than the chief.

        Args:
            what: What the facts are of.
            facts: Names to JSON values; nested ones are named with dots.

        Raises:
            Disagreement: Names worker, fact and both values.
        """
        if self.size == 1:
            return
        ours, *others = self.gather(what, dict(facts))
        found = []
        for number, theirs in enumerate(others, 1):
            different = differences(
                theirs, ours, text="{name} is {there} there and {here} on " + self.name(0)
            )
            if different:
                found.append(f"{self.name(number)}: {told(different)}")
        if found:
            raise Disagreement(
                f"the workers differ in their {what}, so that they cannot train one model "
                f"together. {' | '.join(found)}. Start all with the same."
            )

    def name(self, number: int) -> str:
        """Returns what a worker is called in messages."""
        return "this process"

    def lost(self, error: BaseException) -> BaseException:
        """Returns what to raise for an error of a collective: in words where a worker has gone."""
        return error

    def when_lost(self, action: Callable[[str], None]) -> None:
        """Calls `action` with the words, in another thread, when a worker is lost."""

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """Tells the other workers of an error that leaves the block, so that they end with it."""
        yield


ALONE = Crew()


class _Connected(Crew):
    """Several workers: the main thread asks and waits, a thread of its own reads and watches."""

    def __init__(
        self, cluster: Cluster, connections: dict[int, socket.socket], timeout_seconds: float
    ) -> None:
        self.number = cluster.number
        self.size = len(cluster.workers)
        self._cluster = cluster
        self._connections = connections
        self._timeout_seconds = timeout_seconds
        self._changed = threading.Condition()
        self._sending = {number: threading.Lock() for number in connections}
        self._failure: str | None = None
        self._actions: list[Callable[[str], None]] = []
        self._turn = 0
        self._came: dict[int, dict[int, dict[str, Any]]] = {}  # turn -> worker -> message
        self._left: set[int] = set()
        self._seen = dict.fromkeys(connections, time.monotonic())
        self._unread = dict.fromkeys(connections, b"")
        self._told = threading.Event()
        self._over = False
        for connection in connections.values():
            connection.settimeout(timeout_seconds)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self._watch, name="crew", daemon=True).start()
        atexit.register(self.leave)

    @property
    def failure(self) -> str | None:
        return self._failure

    def name(self, number: int) -> str:
        return worker_name(number, self._cluster)

    def gather(self, what: str, value: Any) -> list[Any]:
        if self._over:
            raise WorkerLost(
                f"{self.name(self.number)} has left the others, and asks them for {what!r}: after "
                "an error all workers have to be started again."
            )
        turn, self._turn = self._turn, self._turn + 1
        if self.is_chief:
            came = self._wait_for(turn, what, set(self._connections))
            others = {number: message["what"] for number, message in came.items()}
            astray = next((n for n in sorted(others) if others[n] != what), None)
            if astray is not None:
                self._fail(
                    f"{self.name(astray)} is at {others[astray]!r} and {self.name(0)} at {what!r}: "
                    "they do not run the same program; start all with the same."
                )
                self._raise()
            values = [value, *(came[number]["value"] for number in sorted(came))]
            for number in self._connections:
                self._send(number, {"turn": turn, "what": what, "values": values})
            return json.loads(json.dumps(values))  # as the others get it: tuples are lists
        self._send(0, {"turn": turn, "what": what, "value": value})
        return self._wait_for(turn, what, {0})[0]["values"]

    def lost(self, error: BaseException) -> BaseException:
        """A collective may fail a moment before the closed connection is seen here."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None, timeout=_SECONDS_TO_END / 2)
        if self._failure is None:
            return error
        self._told.set()
        return WorkerLost(self._failure)

    def when_lost(self, action: Callable[[str], None]) -> None:
        self._actions.append(action)

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.leave(error)
            own = isinstance(error, (WorkerLost, Disagreement))
            if self._failure is not None and not own:  # it is what the lost worker left behind
                self._told.set()
                raise WorkerLost(self._failure) from error
            raise

    def leave(self, error: BaseException | None = None) -> None:
        """Says goodbye, so that the closed connection is no loss; or what this worker failed by."""
        if self._over:
            return
        self._over = True
        message: dict[str, Any] = {"left": None}
        if error is not None and not isinstance(error, (WorkerLost, Disagreement)):
            message = {"failed": f"{type(error).__name__}: {error}"}
        for number in self._connections:
            with contextlib.suppress(OSError):
                self._send_to(number, message)
        for connection in self._connections.values():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)

    def _wait_for(self, turn: int, what: str, numbers: set[int]) -> dict[int, dict[str, Any]]:
        """Returns the message of each worker for this turn."""
        with self._changed:
            while True:
                came = self._came.setdefault(turn, {})
                if len(came) == len(numbers):
                    return self._came.pop(turn)
                if self._failure is not None:
                    self._raise()
                gone = numbers.intersection(self._left) - set(came)
                if gone:
                    names = ", ".join(self.name(number) for number in sorted(gone))
                    self._fail(f"{names} ended while {self.name(self.number)} was at {what!r}.")
                    self._raise()
                self._changed.wait()

    def _raise(self) -> None:
        self._told.set()
        raise WorkerLost(self._failure)

    def _send(self, number: int, message: dict[str, Any]) -> None:
        if self._failure is not None:
            self._raise()
        try:
            self._send_to(number, message)
        except OSError:
            # The thread that reads knows why, or will.
            with self._changed:
                self._changed.wait_for(lambda: self._failure is not None or self._left, timeout=1.0)
            if self._failure is None:
                self._fail(f"{self.name(number)} has gone: nothing can be sent to it.")
            self._raise()

    def _send_to(self, number: int, message: dict[str, Any]) -> None:
        with self._sending[number]:
            send(self._connections[number], message)

    def _beat(self, number: int) -> None:
        """Says that this process lives, unless something is being sent, which says so as well."""
        if self._sending[number].acquire(blocking=False):
            try:
                send(self._connections[number], {"beat": True})
            finally:
                self._sending[number].release()

    def _watch(self) -> None:
        """Reads what comes and says that this process lives, until a worker is lost."""
        beat = min(_LONGEST_BEAT, self._timeout_seconds / 4)
        next_beat = time.monotonic()
        while not self._over and self._failure is None:
            poll = select.poll()  # select.select takes no file number above 1023
            numbers = {
                connection.fileno(): number
                for number, connection in self._connections.items()
                if number not in self._left
            }
            if not numbers:
                return
            for file in numbers:
                poll.register(file, select.POLLIN)
            for file, _ in poll.poll(beat / 2 * 1000):
                self._read(numbers[file])
            now = time.monotonic()
            if now >= next_beat:
                next_beat = now + beat
                for number in numbers.values():
                    with contextlib.suppress(OSError):
                        self._beat(number)
            for number, seen in self._seen.items():
                if number not in self._left and now - seen > self._timeout_seconds:
                    self._fail(
                        f"{self.name(number)} is silent since {now - seen:.0f} s "
                        f"(trainer.worker_timeout_seconds={self._timeout_seconds:g}): it hangs, or "
                        "its machine or the network is down."
                    )
        if self._failure is not None and not self._over:
            self._end()

    def _read(self, number: int) -> None:
        try:
            data = self._connections[number].recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            if not self._over:
                self._fail(f"{self.name(number)} has gone: its process ended; see its log.")
            return
        self._seen[number] = time.monotonic()
        *lines, self._unread[number] = (self._unread[number] + data).split(b"\n")
        for line in lines:
            self._take(number, json.loads(line))

    def _take(self, number: int, message: dict[str, Any]) -> None:
        if "turn" in message:
            with self._changed:
                self._came.setdefault(message["turn"], {})[number] = message
                self._changed.notify_all()
        elif "left" in message:
            with self._changed:
                self._left.add(number)
                self._changed.notify_all()
        elif "failed" in message:
            self._fail(f"{self.name(number)} failed: {message['failed']}")
        elif "lost" in message:  # the chief knows of a worker that this one has no connection to
            self._fail(message["lost"])

    def _fail(self, words: str) -> None:
        with self._changed:
            if self._failure is not None or self._over:
                return
            self._failure = words
            self._changed.notify_all()
        if self.is_chief:
            for number in self._connections:
                if number not in self._left:
                    with contextlib.suppress(OSError):
                        self._send_to(number, {"lost": words})

    def _end(self) -> None:
        """Ends this process, by its main thread where that is able to."""
        assert self._failure is not None
        logging.error("Training ends: %s", self._failure)
        for action in self._actions:
            with contextlib.suppress(Exception):
                action(self._failure)
        if not self._told.wait(_SECONDS_TO_END):
            sys.stderr.write(
                f"Training ends: {self._failure}\n(exit code {EXIT_WORKER_LOST}; the main thread "
                f"of {self.name(self.number)} did not end by itself)\n"
            )
            sys.stderr.flush()
            os._exit(EXIT_WORKER_LOST)


_crew: Crew = ALONE


def current_crew() -> Crew:
    """Returns the workers that this process trains with: `ALONE` until `join_crew` was called."""
    return _crew


def join_crew(*, start_timeout_seconds: float, worker_timeout_seconds: float) -> Crew:
    """Returns the workers that TF_CONFIG names, once all are there; the same when called again.

    Where it names one or none, that is `ALONE`. Call it before TensorFlow's server starts.

    Args:
        start_timeout_seconds: How long to wait for all.
        worker_timeout_seconds: How long one may be silent before this process ends.

    Raises:
        WorkerLost: Not all came.
        ValueError: TF_CONFIG is wrong, or differs between workers.
    """
    global _crew
    cluster = cluster_of_environment()
    if _crew is not ALONE or cluster is None or len(cluster.workers) < 2:
        return _crew
    logging.info(
        "%s of %d waits for the others", worker_name(cluster.number, cluster), len(cluster.workers)
    )
    connections = meet(cluster, start_timeout_seconds)
    crew = _Connected(cluster, connections, worker_timeout_seconds)
    with crew.telling():
        check_own_port(cluster)
    _tell_of_uncaught_errors(crew)
    _crew = crew
    return crew


def _tell_of_uncaught_errors(crew: _Connected) -> None:
    before = sys.excepthook

    def hook(kind: Any, error: BaseException, trace: Any) -> None:
        before(kind, error, trace)
        if type(error).__module__.startswith("tensorflow"):  # a lost worker may be its cause
            error = crew.lost(error)
        crew.leave(error)
        if isinstance(error, WorkerLost):
            sys.stderr.write(f"Training ends: {error}\n")
            # TensorFlow may wait for the lost worker when it is taken down.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(EXIT_WORKER_LOST)

    sys.excepthook = hook
