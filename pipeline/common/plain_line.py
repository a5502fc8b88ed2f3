"""A user's text on one line of a terminal, or in a comment of a YAML file."""

from __future__ import annotations


def plain_line(text: str) -> str:
    """Return a text without line breaks and control codes.

    These could clear a terminal, and YAML refuses them in comments.
    """
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
