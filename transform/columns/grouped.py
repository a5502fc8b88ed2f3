"""A group with its columns, and how the outputs made of a column are called."""

from __future__ import annotations

from dataclasses import dataclass

from transform.spec.group import Group

INDICATOR_SUFFIX = "_missing"
OTHER_SUFFIX = "_other"


@dataclass(frozen=True)
class ResolvedGroup:
    """A group and the columns that it takes, in order."""

    group: Group
    columns: tuple[str, ...]


def positions(name: str, length: int) -> tuple[str, ...]:
    """Return the columns that a list of fixed length becomes: `vector_0`, `vector_1`, ..."""
    return tuple(f"{name}_{i}" for i in range(length))
