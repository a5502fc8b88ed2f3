"""The size limit of a process argument on Linux."""

from __future__ import annotations

import os
from collections.abc import Sequence

LONGEST_ARGUMENT = 128 * 1024
"""Bytes of one argument with its end (MAX_ARG_STRLEN): longer ones start no process (E2BIG)."""


def refuse_long_arguments(words: Sequence[str]) -> str:
    """Return why a command cannot be started; "" if its arguments are short enough."""
    for place, word in enumerate(words):
        size = len(os.fsencode(word)) + 1
        if size > LONGEST_ARGUMENT:
            flag = words[place - 1] if place and words[place - 1].startswith("--") else f"{place}"
            return (
                f"cannot start: its argument {flag} has {as_size(size)}, and Linux takes "
                f"{as_size(LONGEST_ARGUMENT)} in one. Compile the pipeline again (long settings "
                "are compressed), or name fewer columns"
            )
    return ""


def as_size(count: int) -> str:
    """Return a number of bytes as text in KiB."""
    return f"{count / 1024:,.0f} KiB"
