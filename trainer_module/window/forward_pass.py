"""Whether the code that runs is the forward pass of a window, which some layers need to know."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

_active: contextvars.ContextVar[bool] = contextvars.ContextVar("window_forward_pass", default=False)


@contextlib.contextmanager
def window_forward_pass() -> Iterator[None]:
    """Mark the block as a window's forward pass: layers may take their gradient themselves.

    In `fit`, evaluation and export such layers are like any other.
    """
    token = _active.set(True)
    try:
        yield
    finally:
        _active.reset(token)


def in_window_forward_pass() -> bool:
    """Return whether a window's forward pass is being traced."""
    return _active.get()
