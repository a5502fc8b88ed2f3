"""One run at a time in an output folder and on a metadata store.

    owner = LockOwner.current("python -m pipeline run ...", file)
    with exclusive_run(owner, {"output.folder": path}):
        ...

A run locks a file with portalocker (flock) and writes its owner record into it. The operating
system releases the lock whenever the process ends; an owner record in an unlocked file is therefore
from a run that was killed. Forked children close the file: they would share the lock and could hold
it longer than their parent.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import portalocker

from pipeline.common.errors import ConfigError

_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_RECORD_SECONDS = 1.0  # from locking until the owner record is written
_POLL_SECONDS = 2.0

_held: set[portalocker.Lock] = set()


def _close_in_child() -> None:
    for lock in _held:
        if lock.fh is not None:
            lock.fh.close()  # release() would also unlock the parent's file
            lock.fh = None
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)


class AlreadyRunning(Exception):
    """Another run holds the lock; the message names it."""


@dataclass(frozen=True)
class LockOwner:
    """The run that holds a lock.

    Attributes:
        pid: Its process.
        host: Host name of its machine.
        boot: Boot id of its kernel; containers of one machine share it.
        started: Local time with zone.
        command: Its command line.
        config: Path of its YAML; "" if unknown.
    """

    pid: int
    host: str
    boot: str
    started: str
    command: str
    config: str = ""

    @classmethod
    def current(cls, command: str, config: Path | None = None) -> LockOwner:
        """Return the record of this process."""
        return cls(
            os.getpid(),
            socket.gethostname(),
            _boot_id(),
            time.strftime("%Y-%m-%d %H:%M:%S %z"),
            command,
            "" if config is None else str(config.resolve()),
        )

    @classmethod
    def read(cls, file: Path, *, seconds: float = 0.0) -> LockOwner | None:
        """Return the record in a lock file, or None if it is not complete within the time limit.

        Args:
            file: The lock file.
            seconds: Time limit in seconds.
        """
        end = time.monotonic() + seconds
        while True:
            try:
                return cls(**json.loads(file.read_text(encoding="utf-8")))
            except (OSError, ValueError, TypeError):
                if time.monotonic() >= end:
                    return None
            time.sleep(0.05)

    @property
    def is_remote(self) -> bool:
        """Whether it ran on another machine, whose processes are not visible here."""
        return self.boot != _boot_id() and self.host != socket.gethostname()

    def __str__(self) -> str:
        """Return process, start, configuration and command for a message."""
        where = f" on host {self.host}" if self.is_remote else ""
        config = f", {self.config}" if self.config else ""
        return f"process {self.pid}{where} (started {self.started}{config}: `{self.command}`)"


def lock_file(path: Path) -> Path:
    """Return the file that is locked for a folder or a file."""
    return path / ".run.lock" if path.is_dir() else path.with_name(f".{path.name}.lock")


@contextlib.contextmanager
def exclusive_run(
    owner: LockOwner,
    places: Mapping[str, Path],
    *,
    wait: bool = False,
    say: Callable[[str], object] = lambda line: None,
) -> Iterator[None]:
    """Hold the locks of all places during the block.

    Args:
        owner: The record of this run.
        places: An existing folder, or a file, by field of the configuration.
        wait: Wait for other runs to end instead of raising AlreadyRunning.
        say: Receives a line about a run that is waited for or that was killed.

    Raises:
        AlreadyRunning: Another run holds one of the locks, and `wait` is False.
        ConfigError: The lock file cannot be written.
    """
    with contextlib.ExitStack() as stack:
        for field, path in places.items():
            lock = _acquire(owner, f"{field}={path}", lock_file(path), wait=wait, say=say)
            if lock is not None:
                _held.add(lock)
                stack.callback(_release, lock)
        yield


def _acquire(
    owner: LockOwner, place: str, file: Path, *, wait: bool, say: Callable[[str], object]
) -> portalocker.Lock | None:
    """Return the held lock with our record in its file, or None if the file system has no locks."""
    announced = False
    while True:
        lock = portalocker.Lock(file, "a+", timeout=0, fail_when_locked=True)
        try:
            refusal = _try_acquire(lock, owner, place, file, say)
        except portalocker.LockException as error:
            reason = error.args[0] if error.args else error
            if getattr(reason, "errno", None) not in _WITHOUT_LOCKS:
                raise ConfigError(f"{place}: cannot lock {file} ({reason}).") from None
            say(
                f"Note: {place}: the file system has no locks ({reason}). Make sure that no other "
                "run uses it."
            )
            return None
        except OSError as error:
            raise ConfigError(
                f"{place}: cannot write {file} ({error.strerror}). "
                "Use a writable folder, or change its permissions."
            ) from None
        if refusal is None:
            return lock
        if not wait:
            raise AlreadyRunning(refusal)
        if not announced:
            say(f"Waiting: {refusal.partition(': ')[2].partition('. ')[0]}.")
            announced = True
        time.sleep(_POLL_SECONDS)


def _try_acquire(
    lock: portalocker.Lock,
    owner: LockOwner,
    place: str,
    file: Path,
    say: Callable[[str], object],
) -> str | None:
    """Lock the file and write our record; return why another run must be assumed, or None."""
    try:
        handle = lock.acquire()
    except portalocker.AlreadyLocked:
        return _refusal(place, file, LockOwner.read(file, seconds=_RECORD_SECONDS), locked=True)
    other = LockOwner.read(file)
    if not _is_same_file(handle.fileno(), file):
        lock.release()
        return f"{place}: {file} was removed meanwhile. Try again."
    if other is not None and other.is_remote:  # its lock may be invisible on this machine
        lock.release()
        return _refusal(place, file, other, locked=False)
    if other is not None:
        say(f"Note: {place} was used by {other}, which was killed; its finished nodes are cached.")
    handle.truncate(0)
    handle.write(json.dumps(asdict(owner)))
    handle.flush()
    return None


def _release(lock: portalocker.Lock) -> None:
    if lock in _held and lock.fh is not None:  # otherwise this is a forked child, which closed it
        lock.fh.truncate(0)
        lock.release()
    _held.discard(lock)


def _is_same_file(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(file))
    except FileNotFoundError:
        return False


def _refusal(place: str, file: Path, owner: LockOwner | None, *, locked: bool) -> str:
    ways = ["wait for it (--wait)"]
    if not locked:
        ways.append(f"remove {file} if it has ended, which is not visible from here")
    elif owner is not None and not owner.is_remote:
        ways.append(f"stop it (kill -INT {owner.pid})")
    who = owner or f"another run (which holds {file})"
    return (
        f"{place}: {who} is running there. Concurrent runs would overwrite each other's models: "
        f"{', '.join(ways)}, or use another place "
        f"(--set {place.partition('=')[0]}=...)."
    )


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
