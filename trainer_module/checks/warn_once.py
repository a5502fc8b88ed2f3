"""Log a warning once per text, or once per object and topic."""

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
    logged = _logged if about is None else _logged_about.setdefault(about, set())
    key = topic or message
    if key not in logged:
        logged.add(key)
        _texts.append(message)
        logging.warning("%s", message)


def write_warnings(folder: str) -> None:
    """Write the warnings of this process to a file in a folder, if there are any."""
    if _texts:
        atomic_write_text(f"{folder}/{FILE}", json.dumps(_texts, indent=1))
