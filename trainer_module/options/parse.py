"""Read a settings model from JSON values, with one error that lists all problems."""

from __future__ import annotations

import re
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from trainer_module.common.json_values import Json

Section = TypeVar("Section", bound=BaseModel)


def parse_section(model: type[Section], values: Json, *, section: str) -> Section:
    """Return a configuration, or raise one readable error.

    Args:
        model: Class of the configuration.
        values: Its fields as JSON values.
        section: Name of the configuration in messages.

    Raises:
        ValueError: The message lists every wrong field with its value and a suggestion.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        lines = [_describe(e, section, model) for e in error.errors()]
        raise ValueError("\n".join(lines)) from None


_OF_AUTO = ("int", "float", "literal['auto']")  # union members in pydantic's error locations


def _describe(error: ErrorDetails, section: str, model: type[BaseModel]) -> str:
    location = [str(part) for part in error["loc"] if part not in _OF_AUTO]
    field = ".".join([part for part in (section, *location) if part])
    message = error["msg"].removeprefix("Value error, ")
    message = re.sub(r"^Input should be (?:a valid (\w+)|('.*)).*", r"use a \1\2", message)
    message = message.replace("a integer", "a whole number").replace("a '", "'")
    if not location:
        return f"{field}.{message}" if field else f"{message}."
    if error["type"] == "extra_forbidden":
        from shared_core.nearest import nearest
        from trainer_module.common.keras_arguments import suggest_argument

        fields: dict[str, FieldInfo] = dict(model.model_fields)
        for part in location[:-1]:
            if part in fields:
                declared = fields[part].annotation
                models = [declared, *getattr(declared, "__args__", ())]
                fields = next((m.model_fields for m in models if hasattr(m, "model_fields")), {})
        suggest = nearest if section else suggest_argument
        return f"{field} is not a setting: {suggest(location[-1], fields)}"
    if error["type"] == "missing" or isinstance(error["input"], (dict, BaseModel)):
        return f"{field}: {message}" if message.endswith("?") else f"{field}: {message}."
    return f"{field}={error['input']!r}: {message}."
