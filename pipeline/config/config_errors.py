"""Check a configuration, with one line per wrong field: file, line, field, value and fix."""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pydantic
import yaml
from pydantic import BaseModel
from pydantic_core import ErrorDetails

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonValue
from pipeline.config.accepted import accepted
from pipeline.config.origin import Loc, Origin
from pipeline.config.removed_settings import replacement

Model = TypeVar("Model", bound=BaseModel)

_FEW_KEYS, _NEAREST_KEYS = 10, 5


def check_fields(
    model: type[Model],
    raw: JsonValue,
    path: Path,
    tree: yaml.Node | None = None,
    overrides: Sequence[str] = (),
) -> Model:
    """Return the checked values as a model.

    `tree` has the lines of the YAML `path`; a field that one of `overrides` (`section.field=value`)
    set is identified by that option instead.

    Raises:
        ConfigError: One line per wrong field: file, line, field, value and fix.
    """
    checked, errors = None, []
    try:
        checked = model.model_validate(raw)
    except pydantic.ValidationError as error:
        errors = error.errors()
    origin = Origin(path, tree, overrides)
    # Pydantic takes true and false as 1 and 0.
    flags = [(loc, flag) for loc, flag in _booleans(raw) if accepted(model, loc, raw).is_number]
    lines = [origin.prefix(loc) + _type_error(model, loc, flag, raw) for loc, flag in flags]
    places = {loc for loc, _ in flags}
    lines += [_line(model, each, raw, origin) for each in errors if each["loc"] not in places]
    if checked is None or lines:
        raise ConfigError("\n".join(dict.fromkeys(lines)))
    return checked


def _line(model: type[BaseModel], error: ErrorDetails, raw: JsonValue, origin: Origin) -> str:
    """Return the message of one error of pydantic."""
    value, kind = error["input"], error["type"]
    loc = _without_union_tags(error["loc"], raw, missing=kind == "missing")
    field = ".".join(map(str, loc)) or "the whole file"
    message = error["msg"].removeprefix("Value error, ")
    if kind == "extra_forbidden":
        instead = replacement(field)
        text = (
            f"{field}: removed in 0.3.0. Instead, {instead}."
            if instead
            else f"{field}: unknown key. {_suggest(model, loc, raw)}"
        )
    elif kind == "missing":
        place = accepted(model, loc, raw)
        text = f"{field}: required, but missing. {place.fix(model, None)}."
    elif error["loc"][-1:] == ("[key]",):
        text = f"{field}: the key {value!r} is not a text; put it in quotes: '{value}'."
    elif kind != "value_error":
        text = _type_error(model, loc, value, raw)
    elif isinstance(value, dict | list | tuple | BaseModel):
        own = _own_field(message, accepted(model, loc, raw).keys)
        within = f"{field}." if loc else ""
        text = f"{within}{message}" if own else f"{field}: {message}"
        loc = (*loc, *own)
    else:
        text = f"{field}={value!r}: {message.rstrip('.')}."
    return origin.prefix(loc) + text


def _type_error(model: type[BaseModel], loc: Loc, value: JsonValue, raw: JsonValue) -> str:
    """Return the message of a value that is of another type than the field, or out of bounds."""
    field = ".".join(map(str, loc)) or "the whole file"
    shown = ": empty" if value is None else f"={reprlib.repr(value)}"
    return f"{field}{shown}: {accepted(model, loc, raw).fix(model, value)}."


def _booleans(value: JsonValue, loc: Loc = ()) -> Iterator[tuple[Loc, bool]]:
    if isinstance(value, bool):
        yield loc, value
    items = enumerate(value) if isinstance(value, list) else ()
    for key, each in value.items() if isinstance(value, dict) else items:
        yield from _booleans(each, (*loc, key))


def _own_field(message: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the location, within a section, of the field that a message begins with."""
    found = re.match(r"([a-z_]\w*(?:\.\w+)*)[=:]", message)
    path = tuple(found[1].split(".")) if found else ()
    return path if path and path[0] in names else ()


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


def _suggest(model: type[BaseModel], loc: Loc, raw: JsonValue) -> str:
    """Return what to do about an unknown key: below this section, near it, or anywhere else."""
    key, names = str(loc[-1]), accepted(model, loc[:-1], raw).keys
    if inner := _place_of(model, loc[:-1], key, raw):
        return f"Did you mean {inner!r}?"
    near = difflib.get_close_matches(key.lower(), names, n=1)
    elsewhere = near[0] if near else _place_of(model, (), key, raw)
    hint = f"Did you mean {elsewhere!r}? " if elsewhere else ""
    if not names:
        return hint.strip() or "Remove it."
    if len(names) <= _FEW_KEYS:
        return f"{hint}Accepted here: {', '.join(names)}."
    nearest = difflib.get_close_matches(key, names, n=_NEAREST_KEYS, cutoff=0.0)
    page = f"settings/{loc[0] if len(loc) > 1 else 'index'}.html"
    return (
        f"{hint}Accepted here: {', '.join(nearest)} and {len(names) - len(nearest)} more: "
        f"{page} of `make docs`, or `python -m pipeline schema`, describes them."
    )


def _place_of(model: type[BaseModel], section: Loc, key: str, raw: JsonValue) -> str | None:
    """Return the field of a name that is nearest below a section; None if there is none."""
    sections = [section]
    for _ in range(2):  # sections of sections
        sections = [(*each, name) for each in sections for name in accepted(model, each, raw).keys]
        for each in sections:
            if key in accepted(model, each, raw).keys:
                return ".".join(map(str, (*each, key)))
    return None


def field_names(model: type[BaseModel]) -> list[str]:
    """Return the keys that the YAML may have for this model."""
    return [field.alias or name for name, field in model.model_fields.items()]
