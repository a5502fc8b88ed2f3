"""Log a text once, or once per object and topic."""

from __future__ import annotations

import json
import weakref

from absl import logging

from shared_core.atomic_files import atomic_write_text

FILE = "warnings.json"
"""In the folder of a training run: the texts, as a JSON list."""

_logged: set[str] = set()
_texts: list[str] = []
_logged_about: weakref.WeakKeyDictionary[object, set[str]] = weakref.WeakKeyDictionary()


def warn_once(message: str, *, about: object = None, topic: str | None = None) -> None:
    """Log a warning unless it was logged before."""
    if _is_new(topic or message, about):
        _texts.append(message)
        logging.warning("%s", message)


def log_once(message: str, *, about: object, topic: str | None = None) -> None:
    """Log a fact about an object unless it was logged before."""
    if _is_new(topic or message, about):
        logging.info("%s", message)


def _is_new(key: str, about: object) -> bool:
    logged = _logged if about is None else _logged_about.setdefault(about, set())
    is_new = key not in logged
    logged.add(key)
    return is_new


def write_warnings(folder: str) -> None:
    """Write the warnings of this process to a file in a folder, if there are any."""
    if _texts:
        atomic_write_text(f"{folder}/{FILE}", json.dumps(_texts, indent=1))
