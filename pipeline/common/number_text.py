"""Whether a text is a number."""

from __future__ import annotations


def is_number(text: str) -> bool:
    """Return whether Python reads a text as a float, NaN and infinities included."""
    try:
        float(text)
    except ValueError:
        return False
    return True
