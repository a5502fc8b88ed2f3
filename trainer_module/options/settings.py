"""The base class of settings models, and the role of a setting, marked at its field."""

from __future__ import annotations

import operator
from dataclasses import dataclass

from pydantic import BaseModel, BeforeValidator, ConfigDict

from trainer_module.common.json_values import Json


@dataclass(frozen=True)
class Role:
    """The role of a setting in a run, in addition to its type; a mark at the field.

    A field without a mark affects the result, so that a forgotten mark cannot resume another run's
    checkpoint.

    Attributes:
        affects_result: Whether another value makes another run. The length of a run does not affect
            the result, because it may grow.
        untunable: Why a search cannot vary it; None if it can.
    """

    affects_result: bool = True
    untunable: str | None = None


RUNTIME_ONLY = Role(affects_result=False, untunable="it does not change what is learned")
RUN_LENGTH = Role(
    affects_result=False, untunable="set the length of a trial by epochs or steps, next to search"
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

    def fingerprint(self) -> dict[str, Json]:
        """Return the settings that affect the result, as JSON values by name."""
        values = self.model_dump(mode="json")
        found: dict[str, Json] = {}
        for name, role in self.roles().items():
            value = getattr(self, name)
            if role.affects_result:
                found[name] = value.fingerprint() if isinstance(value, Settings) else values[name]
        return found


def _at_least_one(value: Json) -> Json:
    """Return a count as an int, including NumPy's; leave non-numbers to the field's type.

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


# The mark of a field that is a count of at least 1.
COUNT = BeforeValidator(_at_least_one)
