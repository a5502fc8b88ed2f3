"""Run a cluster as processes of this machine: for trials, tests and pipeline nodes."""

from __future__ import annotations

import collections
import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from trainer_module.devices.cluster import EXIT_WORKER_LOST, Cluster

_HOST = "127.0.0.1"
# After a worker fails, so that the others can report what they noticed.
_SECONDS_TO_REPORT = 5.0
_TAIL_LINES = 30
_POLL_SECONDS = 0.05

# Ends a process with its launcher: prctl(PR_SET_PDEATHSIG, SIGKILL), which survives exec. It is a
# program that starts the program, because Python's preexec_fn is not safe with threads.
_END_WITH_PARENT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); "
    "sys.exit(1) if os.getppid() != int(sys.argv[1]) else os.execvp(sys.argv[2], sys.argv[2:])"
)


def describe_end(code: int) -> str:
    """Return how a process ended, as a predicate: `ended with code 3`, `ended by SIGTERM`.

    `code` is its exit code; below 0 or above 128 for the signal that ended it.
    """
    number = -code if code < 0 else code - 128
    how = f"by {signal.Signals(number).name}" if code < 0 else f"with code {code}"
    if number == signal.SIGKILL:
        how += " (killed, often because memory ran out: give it more memory, or less to do)"
    return f"ended {how}"


class Failed(NamedTuple):
    """A process that failed."""

    name: str  # "worker 1", "chief", "ps 0"
    code: int  # its exit code, below 0 for the signal that ended it
    log: str | None  # file with its output; None without `log_dir`
    tail: tuple[str, ...]


class WorkersFailed(RuntimeError):
    """Some of the launched processes failed.

    Attributes:
        failed: The processes that failed on their own, in order of time; then those that ended
            because another one was lost.
        code: Exit code for the launching program: that of the first, 128 + n for signal n.
    """

    def __init__(self, failed: Sequence[Failed]) -> None:
        """Make the message from the first failure."""
        self.failed = tuple(sorted(failed, key=lambda one: one.code == EXIT_WORKER_LOST))
        first = self.failed[0]
        self.code = first.code if first.code >= 0 else 128 - first.code
        others = ", ".join(one.name for one in self.failed[1:])
        text = f"{first.name} {describe_end(first.code)}" + (f" (then {others})" if others else "")
        text += f"; its log is {first.log}" if first.log else ""
        if first.tail:
            text += "; its last lines:\n" + "\n".join(f"  {line}" for line in first.tail)
        super().__init__(text)


def launch(
    command: Sequence[str],
    *,
    workers: int = 2,
    chief: bool = False,
    parameter_servers: int = 0,
    log_dir: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str, str], None] = lambda name, line: print(f"[{name}] {line}", flush=True),
    worker_restarts: int = 0,
    grace_seconds: float = 30.0,
) -> None:
    """Run a program as each task of a cluster on this machine, and wait for all to end.

    Each process gets TF_CONFIG with ports of 127.0.0.1 that are reserved for the run, and
    TF_USE_LEGACY_KERAS=0. When one fails, the others get SIGTERM after 5 seconds, in which they may
    notice it, and SIGKILL after the grace period. The same happens when this process gets SIGTERM
    or SIGINT: training saves a checkpoint and exits with code 143. The processes end with this
    one. With parameter servers there is a chief as well, with which the other tasks end.

    Args:
        command: Program and arguments, the same for each process.
        workers: Number of tasks "worker", at least 1.
        chief: Whether to add a task "chief"; otherwise worker 0 is the chief.
        parameter_servers: Number of tasks "ps".
        log_dir: Folder for one log file per process, such as `worker-0.log`. None: no files.
        env: Environment of the processes; None: this one's.
        on_line: Called in one thread with the name of a process ("worker 0") and each line of its
            output.
        worker_restarts: With parameter servers, total number of restarts of failed workers.
        grace_seconds: Between SIGTERM and SIGKILL.

    Raises:
        WorkersFailed: A process failed; the message has its name, code, log and last lines.
        ValueError: A number is out of range.
    """
    for name, value, least in (
        ("workers", workers, 1),
        ("parameter_servers", parameter_servers, 0),
        ("worker_restarts", worker_restarts, 0),
    ):
        if value < least:
            raise ValueError(f"{name}={value}: use at least {least}.")
    has_chief = chief or parameter_servers > 0
    counts = {"chief": int(has_chief), "worker": workers, "ps": parameter_servers}
    env = os.environ if env is None else env
    with contextlib.ExitStack() as stack:
        addresses = {
            role: tuple(f"{_HOST}:{stack.enter_context(_reserved_port())}" for _ in range(count))
            for role, count in counts.items()
            if count
        }
        run = _Run(on_line, worker_restarts if parameter_servers else 0, grace_seconds)
        stack.enter_context(_signals_to(run))
        stack.callback(run.kill)
        for role in addresses:
            for index in range(counts[role]):
                cluster = Cluster(addresses, role, index)
                run.start(_Process(cluster, command, log_dir, env, run.lines))
        run.wait()


class _Process:
    """One task: its process, and a thread that reads its output."""

    def __init__(
        self,
        cluster: Cluster,
        command: Sequence[str],
        log_dir: str | os.PathLike[str] | None,
        env: Mapping[str, str],
        lines: queue.SimpleQueue[tuple[str, str]],
    ) -> None:
        self.role = cluster.role
        self.name = self.role if self.role == "chief" else f"{self.role} {cluster.index}"
        self._command = [
            *(sys.executable, "-I", "-S", "-c", _END_WITH_PARENT, str(os.getpid())),
            *command,
        ]
        # Keras 3, and lines that appear at once.
        own = {"TF_USE_LEGACY_KERAS": "0", "PYTHONUNBUFFERED": "1"}
        self._env = {**env, **own, "TF_CONFIG": cluster.tf_config()}
        self._lines = lines
        self._tail: collections.deque[str] = collections.deque(maxlen=_TAIL_LINES)
        self._log: Path | None = None
        if log_dir is not None:
            Path(log_dir).mkdir(parents=True, exist_ok=True)
            self._log = Path(log_dir) / f"{self.name.replace(' ', '-')}.log"
            self._log.write_bytes(b"")

    def start(self) -> None:
        self.child = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._env,
            start_new_session=True,  # Ctrl-C reaches it once, by the launcher
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        with open(self._log or os.devnull, "ab", 0) as log:
            for raw in self.child.stdout:
                log.write(raw)
                line = raw.decode(errors="replace").rstrip("\r\n")
                self._tail.append(line)
                self._lines.put((self.name, line))

    def kill(self) -> None:
        """Kill the process and its children."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()

    def ended(self) -> Failed:
        """Return how it ended, once its last lines are read: they show the reason."""
        self._reader.join(timeout=2.0)
        log = None if self._log is None else str(self._log)
        return Failed(self.name, self.child.returncode, log, tuple(self._tail))


class _Run:
    """All processes of a launch, from start to end."""

    def __init__(
        self, on_line: Callable[[str, str], None], restarts: int, grace_seconds: float
    ) -> None:
        self.lines: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self.signalled = 0
        self._on_line = on_line
        self._restarts = restarts
        self._grace_seconds = grace_seconds
        self._processes: list[_Process] = []

    def start(self, process: _Process) -> None:
        process.start()
        self._processes.append(process)

    def wait(self) -> None:
        """Wait until all have ended; raise an error if one failed."""
        waiting, terminate_at, kill_at = list(self._processes), None, None
        served = any(process.role == "ps" for process in waiting)
        failed: list[Failed] = []
        done = False  # the chief has ended: exit codes of the others do not count
        while waiting:
            self._pass_lines(_POLL_SECONDS)
            now = time.monotonic()
            for process in [p for p in waiting if p.child.poll() is not None]:
                ending = kill_at is not None or done
                if not ending and self._restart_if_allowed(process):
                    continue
                waiting.remove(process)
                if process.child.returncode and not done and (not ending or self.signalled):
                    failed.append(process.ended())
                    if not ending:
                        terminate_at = terminate_at or now + _SECONDS_TO_REPORT
                if served and process.role == "chief" and not failed:
                    done, terminate_at = True, now
            if self.signalled and kill_at is None:
                terminate_at = now
            if terminate_at is not None and now >= terminate_at and kill_at is None:
                for process in waiting:
                    process.child.send_signal(signal.SIGTERM)
                kill_at = now + self._grace_seconds
            if kill_at is not None and (now >= kill_at or self.signalled > 1):
                for process in waiting:
                    process.kill()
        for process in self._processes:
            process.ended()
        self._pass_lines(0.0)
        if failed:
            raise WorkersFailed(failed)

    def kill(self) -> None:
        for process in self._processes:
            process.kill()

    def _restart_if_allowed(self, process: _Process) -> bool:
        if process.role != "worker" or not process.child.returncode or not self._restarts:
            return False
        self._restarts -= 1
        how = describe_end(process.ended().code)
        self._on_line(process.name, f"{how}: it is started again")
        process.start()
        return True

    def _pass_lines(self, wait: float) -> None:
        """Pass new lines to `on_line` in this thread; wait for the first so many seconds."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._on_line(*self.lines.get(block=wait > 0, timeout=wait or None))
                wait = 0.0


@contextlib.contextmanager
def _signals_to(run: _Run) -> Iterator[None]:
    """Count SIGTERM and SIGINT in the block; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def count(number: int, frame: object) -> None:
        run.signalled += 1

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, count) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _reserved_port() -> Iterator[int]:
    """Reserve a free port in the block for a socket with SO_REUSEADDR, such as TensorFlow's.

    The port is bound here, but nothing listens on it. If both sockets set SO_REUSEADDR, Linux lets
    another one listen on it, but does not give it to a program that asks for any free port. (Set
    before `bind`, the option might make this socket share a port.)
    """
    with socket.socket() as held:
        held.bind((_HOST, 0))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        yield held.getsockname()[1]
