"""Ctrl-C stays Ctrl-C, whatever a C++ library makes of the exception that it raises."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def interrupts_kept() -> Iterator[None]:
    """Ends with KeyboardInterrupt where a SIGINT came and its exception arrives as another one.

    Python raises KeyboardInterrupt in the main thread's next line. Where that is one that C++ code
    called (TensorFlow while it traces, for example), pybind11 raises it as a RuntimeError whose
    text is "KeyboardInterrupt": which looks like a failure to the caller.

    Raises:
        KeyboardInterrupt: from that other exception.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield  # it is ignored, or somebody else's to handle
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
    """Raises SystemExit(143) on SIGTERM, so that what the block has started is ended.

    Raises:
        SystemExit: SIGTERM came.
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
