"""What every part of a spec is made of: frozen models, lists of names, types of columns."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator

ColumnType = Literal["float", "int", "string"]

OTHERS = "others"
GLOB_CHARACTERS = frozenset("*?[")


def is_glob(pattern: str) -> bool:
    """Whether `pattern` selects by wildcard (`V*`, `pickup_?`, `x[0-9]`) and not by name."""
    return bool(GLOB_CHARACTERS & set(pattern))


def as_list(value: Any) -> Any:
    """Return a list of one entry for a YAML scalar: `columns: fare` is `columns: [fare]`."""
    return [value] if isinstance(value, str) else value


def _name_or_options(value: Any) -> str:
    return "name" if isinstance(value, str) else "options"


# For a union of Tag("name"), a word, and Tag("options"), a mapping: a mistake in one of them is
# reported once, not for the other one too.
NameOrOptions = Discriminator(_name_or_options)

Names = Annotated[tuple[str, ...], BeforeValidator(as_list)]


class Model(BaseModel):
    """Frozen, and without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")
