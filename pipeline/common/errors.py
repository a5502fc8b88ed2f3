"""The error for a wrong configuration, and parts of its message."""

from __future__ import annotations

from collections.abc import Sequence


class ConfigError(ValueError):
    """The configuration is wrong; the message names file, field, value and fix."""


def missing_columns(names: Sequence[str], others: Sequence[str] = ()) -> str:
    """Return `missing column: rooms`, or `missing columns: ...` for several.

    `others` are columns of the file that are not needed: a missing one may be misspelled.
    """
    from shared_core.nearest import nearest

    pairs = [(name, nearest(name, others, otherwise="")) for name in names]
    near = [f"{name} ({each})" if each.startswith("did") else name for name, each in pairs]
    return f"missing column{'s' if len(names) > 1 else ''}: {', '.join(near)}"


def first_line(error: BaseException) -> str:
    """Return the start of an error's message, or its type if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
