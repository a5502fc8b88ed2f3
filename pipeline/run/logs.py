"""Write TFX's thousands of log lines to a file, and only the relevant output to the terminal."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TextIO


class _Terminal(NamedTuple):
    """The streams that the process was started with."""

    out: TextIO
    err: TextIO


@contextlib.contextmanager
def logs_to(file: Path) -> Iterator[_Terminal]:
    """Redirect all output of this process and its children to a file.

    It redirects file descriptors, because C++ libraries and Beam's worker processes write there
    too.

    Args:
        file: The log; its folder is created.

    Yields:
        The real standard output and error.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    target = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)
    try:
        with _opened(saved[0]) as out, _opened(saved[1]) as err:
            yield _Terminal(out, err)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(saved[0], 1)
        os.dup2(saved[1], 2)
        for descriptor in saved:
            os.close(descriptor)


def _opened(descriptor: int) -> TextIO:
    return os.fdopen(os.dup(descriptor), "w", encoding="utf-8", buffering=1)


@contextlib.contextmanager
def absl_to_stderr() -> Iterator[None]:
    """Make absl write to the current `sys.stderr`, not to the one at its import."""
    import absl.logging

    handler = absl.logging.get_absl_handler().python_handler
    before = handler.stream
    handler.stream = sys.stderr
    try:
        yield
    finally:
        handler.stream = before
