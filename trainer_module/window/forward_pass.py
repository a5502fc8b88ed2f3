"""Mark the forward pass of a window, so that layers can detect it."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

_active: contextvars.ContextVar[bool] = contextvars.ContextVar("window_forward_pass", default=False)


@contextlib.contextmanager
def window_forward_pass() -> Iterator[None]:
    """Mark a `with` block as a window's forward pass: layers may then use a custom gradient.

    In `fit`, evaluation and export these layers behave as any other layer.
    """
    token = _active.set(True)
    try:
        yield
    finally:
        _active.reset(token)


def in_window_forward_pass() -> bool:
    """Return whether a window's forward pass is being traced."""
    return _active.get()
