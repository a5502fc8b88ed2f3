"""Text files that are replaced as a whole, whenever the process is killed."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO


@contextlib.contextmanager
def atomic_write(path: Path, *, newline: str | None = None) -> Iterator[TextIO]:
    """Open a text file (UTF-8) that takes the place of `path` when the block ends without error.

    Until then a reader sees the file as it was, or none. Several writers may write at once: the
    last one to end stays. A kill leaves a file `.<name>.<random>` beside it. The folder is made.

    A symbolic link stays, and its target is replaced. A device, a FIFO or a terminal cannot be
    replaced: it is written to. `-` and what is open as standard output are standard output.
    `newline` is that of `open`; "" for the csv module.

    Raises:
        OSError: It cannot be written there.
    """
    if _is_standard_output(path):
        yield sys.stdout
        sys.stdout.flush()
        return
    before = _status(path)
    if before is not None and not stat.S_ISREG(before.st_mode):
        with path.open("w", newline=newline, encoding="utf-8") as stream:
            yield stream
        return
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", newline=newline, encoding="utf-8") as stream:
            yield stream
        # mkstemp's is for its owner alone
        os.chmod(partial, 0o644 if before is None else stat.S_IMODE(before.st_mode))
        os.replace(partial, target)
    except BaseException:
        os.unlink(partial)
        raise


def atomic_write_text(path: str, text: str) -> None:
    """Write a file that replaces the one before at once, local or remote; make its folder.

    A kill leaves the file as it was. A remote one leaves `<path>.writing`, which the next write
    takes over: one process writes a path at a time.
    """
    if "://" not in path:
        with atomic_write(Path(path)) as stream:
            stream.write(text)
        return
    import tensorflow as tf

    tf.io.gfile.makedirs(os.path.dirname(path))
    # An empty file is whole at once, and S3's file system takes it for a folder, which cannot move.
    unfinished = f"{path}.writing" if text else path
    with tf.io.gfile.GFile(unfinished, "w") as stream:
        stream.write(text)
    if unfinished != path:
        tf.io.gfile.rename(unfinished, path, overwrite=True)


def _is_standard_output(path: Path) -> bool:
    """Return whether a path is `-`, or names what this process has as its standard output."""
    if path == Path("-"):
        return True
    status = _status(path)
    try:
        return status is not None and os.path.samestat(status, os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):  # closed, or not a file
        return False


def message_stream(output: Path) -> TextIO:
    """Return where a command prints its messages: not between the rows of standard output."""
    return sys.stderr if _is_standard_output(output) else sys.stdout


def would_replace(path: Path) -> bool:
    """Return whether writing to the path replaces a file that is there."""
    status = None if _is_standard_output(path) else _status(path)
    return status is not None and stat.S_ISREG(status.st_mode)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None
