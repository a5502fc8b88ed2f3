"""The streams and signals of a run's process: its log file, Ctrl-C, SIGTERM."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple, TextIO


class _Terminal(NamedTuple):
    """The streams that the process was started with."""

    out: TextIO
    err: TextIO


@contextlib.contextmanager
def logs_to(file: Path) -> Iterator[_Terminal]:
    """Redirect all output of this process and its children to a file.

    Yields the real standard output and error. It redirects file descriptors, because C++ libraries
    and Beam's worker processes write there too.
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


@contextlib.contextmanager
def compiled_kept(folder: Path) -> Iterator[None]:
    """Let XLA keep in a folder what it compiles on a CPU, so that the next run loads it.

    Enter it before TensorFlow's first operation. Without effect with a GPU, where it is not tried.
    """
    flags, processor = os.environ.get("TF_XLA_FLAGS", ""), Path("/proc/cpuinfo")
    has_gpu, is_set = Path("/proc/driver/nvidia").exists(), "persistent_cache" in flags
    if processor.exists() and not has_gpu and not is_set:
        lines = processor.read_text(encoding="utf-8").splitlines()
        kind = sorted({line for line in lines if line.startswith(("flags", "Features"))})
        kind.append(importlib.metadata.version("tensorflow"))
        kept = folder.absolute() / hashlib.sha256("".join(kind).encode()).hexdigest()[:8]
        os.environ["TF_XLA_FLAGS"] = f'{flags} --tf_xla_persistent_cache_directory="{kept}"'
    try:
        yield
    finally:
        os.environ["TF_XLA_FLAGS"] = flags


@contextlib.contextmanager
def interrupts_kept() -> Iterator[None]:
    """Raise KeyboardInterrupt if a SIGINT arrived and its exception was converted into another one.

    Python raises KeyboardInterrupt at the next line of the main thread. If C++ code called that
    line (TensorFlow while it traces, for example), pybind11 raises a RuntimeError with the text
    "KeyboardInterrupt", which looks like a failure to the caller.

    Raises:
        KeyboardInterrupt: From the converted exception.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield  # SIGINT is ignored, or handled elsewhere
        return
    came = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        came.set()
        before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    except Exception as error:
        if came.is_set():
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def terminated_by_signal() -> Iterator[None]:
    """Raise SystemExit(143) on SIGTERM, so that child processes of the block are ended.

    Raises:
        SystemExit: SIGTERM arrived.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
