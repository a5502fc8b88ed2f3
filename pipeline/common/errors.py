"""The error for a wrong configuration."""

from __future__ import annotations

from collections.abc import Sequence


class ConfigError(ValueError):
    """The configuration is wrong; the message names file, field, value and fix."""


def missing_columns(names: Sequence[str]) -> str:
    """Return `missing column: rooms`, or `missing columns: ...` for several."""
    return f"missing column{'s' if len(names) > 1 else ''}: {', '.join(names)}"
