"""The base class of settings models, the role of a setting, and the parsing of JSON values.

A role is a mark at the field of the setting.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from shared_core.nearest import nearest
from trainer_module.common.tensors import Json

_Section = TypeVar("_Section", bound=BaseModel)


@dataclass(frozen=True)
class _Role:
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


RUNTIME_ONLY = _Role(affects_result=False, untunable="it does not change what is learned")
RUN_LENGTH = _Role(
    affects_result=False, untunable="set the length of a trial by epochs or steps, next to search"
)
SELECTION_CRITERION = _Role(untunable="trials that differ in it cannot be compared")


class Settings(BaseModel):
    """A frozen record that checks its fields; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def roles(cls) -> dict[str, _Role]:
        """Return the role of each setting."""
        return {
            name: next((mark for mark in field.metadata if isinstance(mark, _Role)), _Role())
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


def parse_section(model: type[_Section], values: Json, *, section: str) -> _Section:
    """Return a configuration, or raise one readable error.

    Raises:
        ValueError: The message lists every wrong field with its value and a suggestion.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        # The members of a union have an error each: `use a number`, `use 'auto'`.
        found: dict[str, list[str]] = {}
        for each in error.errors():
            place, fix = _describe(each, section, model)
            fixes = found.setdefault(place, [])
            fixes.append(fix.removeprefix("use ") if fixes else fix)
        lines = [f"{place}{' or '.join(fixes)}" for place, fixes in found.items()]
        raise ValueError(
            "\n".join(line if line[-1] in ".?" else f"{line}." for line in lines)
        ) from None


_OF_AUTO = ("int", "float", "literal['auto']")  # union members in pydantic's error locations
_VALID = re.compile(r"Input should be a valid (\w+)")
_USE = {
    "integer": "a whole number",
    "number": "a number",
    "tuple": "a list",
    "dictionary": "a mapping",
    "boolean": "true or false",
    "string": "a text",
}


def _describe(error: ErrorDetails, section: str, model: type[BaseModel]) -> tuple[str, str]:
    """Return the setting with its value, and what to do."""
    location = [str(part) for part in error["loc"] if part not in _OF_AUTO]
    field = ".".join([part for part in (section, *location) if part])
    message = error["msg"].removeprefix("Value error, ").rstrip(".")
    if not location:
        return (f"{field}." if field else ""), message
    if error["type"] == "extra_forbidden":
        *above, key = location
        fields = _fields(model, above)
        inner = [name for name in fields if key in _fields(model, [*above, name])]
        if inner:
            return f"{field} is not a setting: ", f"did you mean '{inner[0]}.{key}'?"
        return f"{field} is not a setting: ", nearest(key, fields)
    if error["type"] == "missing" or isinstance(error["input"], (dict, BaseModel)):
        return f"{field}: ", message
    return f"{field}={error['input']!r}: ", fix_of(message)


def fix_of(message: str) -> str:
    """Return pydantic's message as what to use; a message of ours is the same."""
    if valid := _VALID.match(message):
        return f"use {_USE.get(valid[1], f'a {valid[1]}')}"
    if message.startswith(("Input should be '", "Input should be a ")):
        return message.replace("Input should be", "use", 1)
    return message.replace("Input should be", "use a value", 1)


def _fields(model: type[BaseModel], location: Iterable[str]) -> dict[str, FieldInfo]:
    fields: dict[str, FieldInfo] = dict(model.model_fields)
    for part in location:
        if part in fields:
            declared = fields[part].annotation
            models = [declared, *getattr(declared, "__args__", ())]
            fields = next((m.model_fields for m in models if hasattr(m, "model_fields")), {})
    return fields
