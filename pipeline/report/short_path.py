"""Paths as a user types them."""

from __future__ import annotations

import os
from pathlib import Path


def short(path: Path) -> str:
    """Return the path relative to the current folder; unchanged if it is outside it."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
