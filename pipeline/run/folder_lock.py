"""One run at a time in an output folder and on a metadata store: the next one waits or is refused.

    with only_run(Holder.this("python -m pipeline run ...", file), {"output.folder": path}):
        ...

A lock is a file that a process holds by flock, with words in it that say who does. The operating
system frees it with the process that holds it, however that ends: words that are still there then
are of a run that was killed. Forked children give it up, so that none holds it longer than its
parent.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.common.errors import ConfigError

_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_WORDS_SECONDS = 1.0  # from taking a lock to having written who did
_POLL_SECONDS = 2.0

_held: set[int] = set()


def _give_up_in_child() -> None:
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_give_up_in_child)


class InUse(Exception):
    """Another run holds the lock; the message names it."""


@dataclass(frozen=True)
class Holder:
    """Who holds a lock.

    Attributes:
        pid: of the process.
        host: name of its machine.
        boot: of its machine's kernel since its start: containers of one machine share it.
        started: local time, with its zone.
        command: as a shell takes it.
        config: path of the YAML; "" where it is not known.
    """

    pid: int
    host: str
    boot: str
    started: str
    command: str
    config: str = ""

    @classmethod
    def this(cls, command: str, config: Path | None = None) -> Holder:
        """This process, now."""
        return cls(
            os.getpid(),
            socket.gethostname(),
            _boot(),
            time.strftime("%Y-%m-%d %H:%M:%S %z"),
            command,
            "" if config is None else str(config.resolve()),
        )

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is of another machine, whose processes cannot be asked from here."""
        return self.boot != _boot() and self.host != socket.gethostname()

    def __str__(self) -> str:
        """Process, start, command and configuration, for a message."""
        where = f" on host {self.host}" if self.is_elsewhere else ""
        config = f", of {self.config}" if self.config else ""
        return f"process {self.pid}{where} (started {self.started}{config}: `{self.command}`)"


def lock_file(path: Path) -> Path:
    """The file that is locked for a folder, or for a file."""
    return path / ".run.lock" if path.is_dir() else path.with_name(f".{path.name}.lock")


@contextlib.contextmanager
def only_run(
    me: Holder,
    places: Mapping[str, Path],
    *,
    wait: bool = False,
    say: Callable[[str], object] = lambda line: None,
) -> Iterator[None]:
    """Holds the locks of all places for the block.

    Args:
        me: who asks.
        places: field of the configuration -> its folder (which is there), or its file.
        wait: until others end, in place of being refused.
        say: is told what is waited for, and of runs that ended without giving up their lock.

    Raises:
        InUse: another run holds one of them, and `wait` is not set.
        ConfigError: the lock's file cannot be written.
    """
    with contextlib.ExitStack() as stack:
        for field, path in places.items():
            stack.enter_context(_locked(me, field, path, wait=wait, say=say))
        yield


@contextlib.contextmanager
def _locked(
    me: Holder, field: str, path: Path, *, wait: bool, say: Callable[[str], object]
) -> Iterator[None]:
    file = lock_file(path)
    descriptor = _take(me, f"{field}={path}", file, wait=wait, say=say)
    if descriptor is None:
        yield
        return
    _held.add(descriptor)
    try:
        yield
    finally:
        if descriptor in _held:  # not a forked child's, which has given it up
            os.ftruncate(descriptor, 0)
            _held.discard(descriptor)
            os.close(descriptor)


def _take(
    me: Holder, what: str, file: Path, *, wait: bool, say: Callable[[str], object]
) -> int | None:
    """Returns the descriptor of the file, locked and with our words; None where none can be."""
    told = False
    while True:
        descriptor = _open(what, file)
        try:
            refusal = _try(me, what, file, descriptor, say)
            if refusal is None:
                return descriptor
        except OSError as error:
            os.close(descriptor)
            if error.errno not in _WITHOUT_LOCKS:
                raise ConfigError(f"{what}: cannot lock {file} ({error.strerror}).") from None
            say(
                f"Note: {what}: its file system has no locks ({error.strerror}): see to it that no "
                "other run works there."
            )
            return None
        os.close(descriptor)
        if not wait:
            raise InUse(refusal)
        if not told:
            say(f"Waiting: {refusal.partition(': ')[2].partition('. ')[0]}.")
            told = True
        time.sleep(_POLL_SECONDS)


def _try(
    me: Holder, what: str, file: Path, descriptor: int, say: Callable[[str], object]
) -> str | None:
    """Locks the file and writes our words, or returns why not."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _refusal(what, file, _holder(file, patience=_WORDS_SECONDS), known_to_run=True)
    if not _is_there(descriptor, file):  # what is locked here is not what others ask for
        return f"{what}: somebody removes {file} just now. Try again."
    others = _holder(file)
    if others is not None and others.is_elsewhere:  # locks need not reach another machine
        return _refusal(what, file, others, known_to_run=False)
    if others is not None:
        say(
            f"Note: {what} was in use by {others}, which was killed; its finished nodes are cached."
        )
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(asdict(me)).encode(), 0)
    return None


def _open(what: str, file: Path) -> int:
    try:
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigError(
            f"{what}: cannot write {file} ({error.strerror}). "
            "Name a place that you may write to, or change its permissions."
        ) from None


def _holder(file: Path, *, patience: float = 0.0) -> Holder | None:
    """Who says in the file to hold it, given time to say so; None where nobody does."""
    end = time.monotonic() + patience
    while True:
        try:
            return Holder(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):  # not there, none or not all of the words
            if time.monotonic() >= end:
                return None
        time.sleep(0.05)


def _is_there(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(file))
    except FileNotFoundError:
        return False


def _refusal(what: str, file: Path, holder: Holder | None, *, known_to_run: bool) -> str:
    who = holder or f"another run (which holds {file})"
    ways = ["wait for it (--wait)"]
    if not known_to_run:
        ways.append(f"remove {file} if it has ended, which cannot be seen from here")
    elif holder is not None and not holder.is_elsewhere:
        ways.append(f"stop it (kill -INT {holder.pid})")
    ways.append(f"give this run a place of its own (--set {what.partition('=')[0]}=...)")
    return (
        f"{what}: {who} is at work there. Two runs would take each other's models: "
        f"{', '.join(ways[:-1])}, or {ways[-1]}."
    )


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
