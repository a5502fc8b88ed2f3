"""One run at a time in an output folder and on a metadata store.

    with exclusive_run("python -m pipeline run ...", {"output.folder": path}):
        ...

A run locks a file (flock) and writes who it is into it. The operating system releases the lock
whenever the process ends; text in an unlocked file is therefore from a run that was killed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TextIO

import portalocker

from pipeline.common.errors import ConfigError

_RECORD_SECONDS = 0.2  # from locking until the owner is written


class AlreadyRunning(Exception):
    """Another run holds the lock; the message names it."""


@contextlib.contextmanager
def exclusive_run(
    command: str,
    places: Mapping[str, Path],
    *,
    say: Callable[[str], object] = lambda line: None,
) -> Iterator[None]:
    """Hold the locks of all places during the block.

    Args:
        command: The command of this run, shown to others.
        places: An existing folder, or a file, by field of the configuration.
        say: Receives a line about a run that was killed.

    Raises:
        AlreadyRunning: Another run holds one of the locks.
        ConfigError: The lock file cannot be written.
    """
    started = time.strftime("%Y-%m-%d %H:%M:%S %z")
    owner = f"process {os.getpid()} on {socket.gethostname()} (started {started}: `{command}`)"
    with contextlib.ExitStack() as stack:
        for field, path in places.items():
            stack.enter_context(_locked(owner, field, path, say))
        yield


@contextlib.contextmanager
def _locked(owner: str, field: str, path: Path, say: Callable[[str], object]) -> Iterator[None]:
    place = f"{field}={path}"
    file = path / ".run.lock" if path.is_dir() else path.with_name(f".{path.name}.lock")
    try:
        stream = file.open("a+", encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{place}: cannot write {file} ({error.strerror}). Use a writable folder, or change "
            "its permissions."
        ) from None
    with stream:
        if not (reason := _try_lock(stream)):
            other = _read(file, seconds=_RECORD_SECONDS) or f"another run (which holds {file})"
            raise AlreadyRunning(
                f"{place}: {other} is running there. Concurrent runs would overwrite each other's "
                "models: wait for it, stop it (kill -INT and its process number), or use another "
                f"place (--set {field}=...)."
            )
        if reason != "locked":
            say(f"Note: {place}: {reason}. Make sure that no other run uses it.")
        elif other := _read(file):
            say(f"Note: {place} was used by {other}, which was killed; its nodes are cached.")
        stream.truncate(0)
        stream.write(owner)
        stream.flush()
        try:
            yield
        finally:
            stream.truncate(0)


def _try_lock(stream: TextIO) -> str:
    """Return `locked`, why the file system cannot lock, or "" if another run has the lock."""
    try:
        portalocker.lock(stream, portalocker.LOCK_EX | portalocker.LOCK_NB)
    except portalocker.AlreadyLocked:
        return ""
    except portalocker.LockException as error:
        return f"the file system has no locks ({error})"
    return "locked"


def _read(file: Path, *, seconds: float = 0.0) -> str:
    """Return what a lock file holds, after at most this time."""
    end = time.monotonic() + seconds
    while not (text := file.read_text(encoding="utf-8")) and time.monotonic() < end:
        time.sleep(0.02)
    return text
