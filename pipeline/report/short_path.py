"""Paths as a user types them."""

from __future__ import annotations

import os
from pathlib import Path


def short(path: Path) -> str:
    """The path as the user would type it from here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
