"""Numbers as texts, and texts that are numbers."""

from __future__ import annotations


def is_number(text: str) -> bool:
    """Return whether Python reads a text as a float, NaN and infinities included."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def short_number(value: float, digits: int = 4) -> str:
    """Return all digits of a whole number, and a few significant ones of another."""
    if isinstance(value, int) or (value.is_integer() and abs(value) < 2**53):
        return str(int(value))
    return f"{value:.{digits}g}"
