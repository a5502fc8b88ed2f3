"""What a misspelt name was probably meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable


def nearest(name: str, choices: Iterable[str], *, otherwise: str = "use one of") -> str:
    """Return the part of an error message that offers the closest of `choices`.

    `otherwise` precedes the first choices if none of them is close.
    """
    choices = sorted(set(choices))
    within = [choice for choice in choices if choice.lower().endswith(f".{name.lower()}")]
    if within:
        return f"did you mean {within[0]!r}?"
    folded = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    if close:
        return f"did you mean {folded[close[0]]!r}?"
    return f"{otherwise} {', '.join(choices[:20])}{', ...' if len(choices) > 20 else ''}"


def nearest_column(name: str, columns: Iterable[str], *, but: Collection[str] = ()) -> str:
    """Return the same for a column of the data, without those that would be wrong as well."""
    columns = [column for column in columns if column not in but]
    if not columns:
        return "the data has: no columns"
    return nearest(name, columns, otherwise="the data has:")
