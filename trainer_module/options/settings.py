"""The base of settings models, and the role of a setting, marked at its field."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict


@dataclass(frozen=True)
class Role:
    """What a setting is to a run, beside its type; a mark at the field.

    A field without a mark affects the result, so that a forgotten mark cannot continue another
    run's checkpoint.

    Attributes:
        affects_result: Whether another value makes another run. A run's length does not: it may
            grow.
        untunable: Why a search cannot vary it; None where it can.
    """

    affects_result: bool = True
    untunable: str | None = None


RUNTIME_ONLY = Role(affects_result=False, untunable="it does not change what is learned")
RUN_LENGTH = Role(
    affects_result=False, untunable="give a trial's length as epochs or steps beside search"
)
SELECTION_CRITERION = Role(untunable="trials that differ in it cannot be compared")


class Settings(BaseModel):
    """A frozen record that checks its fields; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def roles(cls) -> dict[str, Role]:
        """Return the role of each setting."""
        return {
            name: next((mark for mark in field.metadata if isinstance(mark, Role)), Role())
            for name, field in cls.model_fields.items()
        }

    def fingerprint(self) -> dict[str, Any]:
        """Return the settings that affect the result, as JSON values by name."""
        names = {name for name, role in self.roles().items() if role.affects_result}
        return self.model_dump(mode="json", include=names)


def at_least_one(value: Any) -> Any:
    """Return a count as an int, NumPy's too; leave what is no number to the field's type.

    Raises:
        ValueError: The count is below 1.
    """
    is_flag = isinstance(value, bool)
    try:
        value = operator.index(value)
    except TypeError:
        return value
    if value < 1 or is_flag:
        raise ValueError("use a whole number of at least 1")
    return value
