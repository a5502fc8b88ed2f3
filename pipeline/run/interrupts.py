"""Keep Ctrl-C a KeyboardInterrupt if a C++ library converts the exception."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


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
