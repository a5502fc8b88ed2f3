"""What a misspelt name of a column was probably meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, choices: Iterable[str]) -> str:
    """A sentence that offers the closest of `choices` to a misspelt `name`."""
    choices = sorted(choices)
    folded = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.5)
    if close:
        return f"did you mean {folded[close[0]]!r}?"
    shown = ", ".join(choices[:20]) + (", ..." if len(choices) > 20 else "")
    return f"the data has: {shown or 'no columns'}"
