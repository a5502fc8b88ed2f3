"""Log a warning once per text, or once per object and topic."""

from __future__ import annotations

import weakref

from absl import logging

_logged: set[str] = set()
_logged_about: weakref.WeakKeyDictionary[object, set[str]] = weakref.WeakKeyDictionary()


def warn_once(message: str, *, about: object = None, topic: str | None = None) -> None:
    """Log a warning unless it was logged before.

    Args:
        message: The text.
        about: An object, such as a model; each object gets a separate warning. None: the text is
            logged once per process.
        topic: What counts as the same warning; None: the same text.
    """
    logged = _logged if about is None else _logged_about.setdefault(about, set())
    key = topic or message
    if key not in logged:
        logged.add(key)
        logging.warning("%s", message)
