"""Glob patterns of files: names with `[`, `*` and `?` in them, and the folder to look below."""

from __future__ import annotations

import glob
import re

_ESCAPED = re.compile(r"\[([*?[])\]")


def escape(path: str) -> str:
    """Return a pattern that matches this path alone; of another file system, the path as it is."""
    return path if "://" in path else glob.escape(path)


def is_literal(part: str) -> bool:
    """Return whether a part of a pattern matches one name alone."""
    return glob.escape(_ESCAPED.sub(r"\1", part)) == part


def literal_folder(folder: str, pattern: str) -> str:
    """Return the folder without wildcards that a pattern's files lie below.

    Args:
        folder: A path, not a pattern.
        pattern: Below it.
    """
    parts = pattern.split("/")[:-1]
    fixed = next((i for i, part in enumerate(parts) if not is_literal(part)), len(parts))
    literal = [_ESCAPED.sub(r"\1", part) for part in parts[:fixed]]
    return "/".join([folder, *literal] if folder else literal)
