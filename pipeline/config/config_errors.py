"""Describe the errors of a configuration, one line per field: file, line, field, value and fix."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import get_origin

import pydantic
import yaml
from pydantic import BaseModel
from pydantic_core import ErrorDetails

from pipeline.common.json_types import JsonValue
from pipeline.config.config import PipelineConfig
from pipeline.config.origin import Origin

_FEW_KEYS, _NEAREST_KEYS = 10, 5


def error_text(
    error: pydantic.ValidationError,
    path: Path,
    raw: JsonValue,
    tree: yaml.Node | None,
    overrides: Sequence[str] = (),
) -> str:
    """Return one line per wrong field: file, line, field, value, accepted values.

    Args:
        error: The error that pydantic raised.
        path: The YAML, or another source of the values.
        raw: The values that were checked.
        tree: The YAML's nodes, which know their lines; None without a file.
        overrides: `section.field=value` of each `--set`; a field that one of them set is identified
            by that option, not by a line of the file.
    """
    origin = Origin(path, tree, overrides)
    lines = []
    for item in error.errors():
        loc = _without_union_tags(item["loc"], raw, missing=item["type"] == "missing")
        field = ".".join(str(part) for part in loc) or "the whole file"
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            lines.append(f"{field}: unknown key. {_suggest(item['loc'])}")
        elif item["type"] == "missing":
            lines.append(f"{field}: required, but missing. Add it.")
        elif (shape := _wrong_shape(item)) is not None:
            lines.append(f"{field}{shape}")
        elif isinstance(item["input"], dict | list | tuple | BaseModel):
            own = _own_field(message, item["loc"])
            within = f"{field}." if loc else ""
            lines.append(f"{within}{message}" if own else f"{field}: {message}")
            loc = (*loc, *own)
        else:
            lines.append(f"{field}={item['input']!r}: {message.rstrip('.')}.")
        lines[-1] = origin.prefix(loc) + lines[-1]
    return "\n".join(dict.fromkeys(lines))


def _wrong_shape(item: ErrorDetails) -> str | None:
    """Return the message for a value in place of a list or a section, or for an empty field."""
    value = item["input"]
    if item["type"] in ("tuple_type", "list_type"):
        if value is None:
            return ": empty. Write a list: [a, b] on this line, or one line `- a` each below it."
        is_scalar = isinstance(value, str | int)
        items = ", ".join(part.strip() for part in str(value).split(","))
        return f"={value!r}: not a list. Write [{items}]." if is_scalar else None
    if item["type"] in ("model_type", "model_attributes_type", "dict_type") and value is None:
        names = ", ".join(_accepted_names(item["loc"])) if item["type"] != "dict_type" else ""
        return f": empty. Write its fields below it, indented{names and f' ({names})'}."
    if item["type"] == "string_type" and isinstance(value, int | float):
        return f"={value!r}: not a text. Put it in quotes."
    return None


def _own_field(message: str, loc: tuple[int | str, ...]) -> tuple[str, ...]:
    """Return the location, within a section, of the field that a message begins with."""
    found = re.match(r"([a-z_]\w*(?:\.\w+)*)[=:]", message)
    path = tuple(found[1].split(".")) if found else ()
    return path if path and path[0] in _accepted_names(loc) else ()


def _without_union_tags(
    loc: tuple[int | str, ...], raw: JsonValue, *, missing: bool
) -> tuple[int | str, ...]:
    """Remove the parts of a pydantic location that name a branch of a union, not a YAML key."""
    kept: list[int | str] = []
    node: JsonValue = raw
    for depth, part in enumerate(loc):
        here: JsonValue = dict(enumerate(node)) if isinstance(node, list) else node
        if isinstance(here, dict) and part in here:
            node = here[part]
        elif depth < len(loc) - 1 or not missing or not isinstance(node, dict):
            continue  # a branch of a union, not the missing key
        kept.append(part)
    return tuple(kept)


def _suggest(loc: tuple[int | str, ...]) -> str:
    accepted = _accepted_names(loc[:-1])
    if not accepted:
        return "Remove it."
    return _offer(str(loc[-1]), accepted)


def _offer(key: str, accepted: Sequence[str]) -> str:
    """Return the likely key, and all keys, or the nearest of many and where the others are."""
    near = difflib.get_close_matches(key, accepted, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    if len(accepted) <= _FEW_KEYS:
        return f"{hint}Accepted here: {', '.join(accepted)}."
    nearest = difflib.get_close_matches(key, accepted, n=_NEAREST_KEYS, cutoff=0.0)
    return (
        f"{hint}Accepted here: {', '.join(nearest)} and {len(accepted) - len(nearest)} more, which "
        "`python -m pipeline schema` describes."
    )


def _accepted_names(loc: tuple[int | str, ...]) -> list[str]:
    """Return the keys of the model at a pydantic location, which names the branch of each union."""
    models: list[type[BaseModel]] = [PipelineConfig]
    is_mapping = False
    for part in loc:
        if isinstance(part, int) or is_mapping:
            is_mapping = False  # a key of a mapping from user-defined names to sections
            continue
        fields = [
            field
            for model in models
            for name, field in model.model_fields.items()
            if part in (name, field.alias)
        ]
        if fields:
            models = _models_in(fields[0].annotation)
            is_mapping = get_origin(fields[0].annotation) is dict
        else:
            models = [model for model in models if part == _branch(model)] or models
    return field_names(models[0]) if models else []


def _models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    arguments = getattr(annotation, "__args__", ())
    return [model for argument in arguments for model in _models_in(argument)]


def _branch(model: type[BaseModel]) -> str:
    """Return pydantic's name of a branch of a union: an engine's name, or else the class name."""
    engine = model.model_fields.get("engine")
    return engine.default if engine else model.__name__


def field_names(model: type[BaseModel]) -> list[str]:
    """Return the keys that the YAML may have for this model."""
    return [field.alias or name for name, field in model.model_fields.items()]
