"""Suggest the file that a misspelled path probably means."""

from __future__ import annotations

import difflib
from pathlib import Path


def did_you_mean(path: str | Path) -> str:
    """Return `Did you mean ...? ` for a path that does not exist; "" without a similar name."""
    path = Path(path)
    folder = path.parent
    while not folder.is_dir() and folder != folder.parent:
        path, folder = folder, folder.parent  # the nearest misspelt part of the path
    try:
        names = sorted(each.name for each in folder.iterdir())
    except OSError:
        return ""
    folded = {name.lower(): name for name in names}
    close = difflib.get_close_matches(path.name.lower(), folded, n=1, cutoff=0.7)
    return f"Did you mean {folder / folded[close[0]]}? " if close else ""
