"""What the YAML accepts at a place, as the fix in a message: the type as text, and an example.

Both come from the JSON Schema of the models, so every field has them. The example is the first of
the field's `examples` and its default, or else a value that is made from the type.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import NamedTuple

import yaml
from pydantic import BaseModel

from pipeline.common.json_types import JsonObject, JsonValue

_MOST_NAMES = 8
_PLAIN_TEXT = {"type", "minLength", "title", "description", "default", "examples", "hint"}
_NAMES = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "array": "a list",
    "object": "a mapping",
    "string": "a text",
}
_BOUNDS = {
    "minimum": "of at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "of at most {}",
    "exclusiveMaximum": "below {}",
    "pattern": "that matches {}",
    "minLength": "that is not empty",
    "minItems": "that is not empty",
}


class _Accepted(NamedTuple):
    """What one place of the YAML accepts.

    Attributes:
        name: The name of the field.
        types: The JSON Schema of each accepted type except null.
        examples: Accepted values: declared ones first, then the default.
        hint: What else the value may be meant for; "" if nothing is declared.
    """

    name: str
    types: tuple[JsonObject, ...]
    examples: tuple[JsonValue, ...] = ()
    hint: str = ""

    @property
    def keys(self) -> list[str]:
        """The keys of a section at this place, required ones first."""
        sections = [each for each in self.types if "properties" in each]
        required = [name for each in sections for name in each.get("required", ())]
        return list(dict.fromkeys([*required, *(n for s in sections for n in s["properties"])]))

    @property
    def is_number(self) -> bool:
        """Whether it accepts numbers, and neither text nor true and false."""
        kinds = {each.get("type") for each in self.types if not _choices(each)}
        return bool(kinds & {"integer", "number"}) and not kinds & {None, "boolean", "string"}

    def example(self, model: type[BaseModel]) -> JsonValue:
        """Return a value that is valid here."""
        made = (_made(model, each, self.name) for each in self.types)
        return next((v for v in (*self.examples, *made) if v not in (None, "", [], {})), "value")

    def fix(self, model: type[BaseModel], value: JsonValue) -> str:
        """Return the fix of a wrong value: `Use a number above 0, such as 4`."""
        kinds = [each.get("type") for each in self.types]
        wanted = dict.fromkeys(
            self._phrase(each, value)
            for each, kind in zip(self.types, kinds, strict=True)
            if kind != "integer" or "number" not in kinds
        )
        hint = f". {self.hint}" if self.hint else ""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        is_unquoted = is_number and kinds == ["string"] and self.types[0].keys() <= _PLAIN_TEXT
        example = str(value) if is_unquoted else self.example(model)
        return f"Use {' or '.join(wanted)}, such as `{_one_line(example)}`{hint}"

    def _phrase(self, schema: JsonObject, value: JsonValue) -> str:
        if choices := _choices(schema):
            return f"{'one of ' if len(choices) > 1 else ''}{', '.join(map(_one_line, choices))}"
        words = [_NAMES.get(schema.get("type", ""), "a value")]
        if schema.get("type") == "string" and isinstance(value, int | float):
            words.append("in quotes")
        if isinstance(value, float) and not math.isfinite(value):
            words.append("that is finite")
        if "properties" in schema:
            more = ", ..." if len(self.keys) > _MOST_NAMES else ""
            words.append(f"with {', '.join(self.keys[:_MOST_NAMES])}{more}")
        bounds = [text.format(schema[key]) for key, text in _BOUNDS.items() if key in schema]
        return " ".join([*words, " and ".join(bounds)]).strip()


def accepted(model: type[BaseModel], keys: tuple[int | str, ...], raw: JsonValue) -> _Accepted:
    """Return what a model of the whole YAML accepts at the place that `keys` lead to.

    `engine` in the values `raw` of the YAML selects the model of a section.
    """
    place = _place(model, "", _schema(model))
    for key in keys:
        place = _below(model, _of_engine(place, raw), key)
        try:
            raw = raw[key]
        except (KeyError, IndexError, TypeError):
            raw = None
    return _of_engine(place, raw)


@functools.cache
def _schema(model: type[BaseModel]) -> JsonObject:
    return model.model_json_schema(by_alias=True)


def _place(model: type[BaseModel], name: str, *schemas: JsonObject) -> _Accepted:
    types = [each for schema in schemas for each in _alternatives(model, schema)]
    examples = [each for schema in schemas for each in _examples(schema)]
    hint = next((schema["hint"] for schema in schemas if "hint" in schema), "")
    return _Accepted(name, tuple(types), (*examples, *(s.get("default") for s in schemas)), hint)


def _examples(schema: JsonObject) -> list[JsonValue]:
    branches = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    return [*schema.get("examples", ()), *(e for each in branches for e in _examples(each))]


def _alternatives(model: type[BaseModel], schema: JsonObject) -> Iterator[JsonObject]:
    while "$ref" in schema:
        schema = _schema(model)["$defs"][schema["$ref"].rpartition("/")[2]]
    branches = schema.get("anyOf") or schema.get("oneOf")
    if branches:
        for each in branches:
            yield from _alternatives(model, each)
    elif schema.get("type") != "null":
        yield schema


def _of_engine(place: _Accepted, raw: JsonValue) -> _Accepted:
    """Keep the section that `engine` selects where there is one of each engine."""
    engines = [each.get("properties", {}).get("engine", {}).get("const") for each in place.types]
    if not engines or engines[0] is None:
        return place
    given = raw.get("engine") if isinstance(raw, dict) else None
    index = engines.index(given) if given in engines else 0
    return place._replace(types=place.types[index : index + 1])


def _below(model: type[BaseModel], place: _Accepted, key: int | str) -> _Accepted:
    """Return what a place accepts at a key or an index."""
    schemas, inner = list[JsonObject](), list[JsonValue]()
    for each in place.types:
        values = each.get("additionalProperties")
        if key in each.get("properties", {}):
            schemas.append(each["properties"][key])
        elif isinstance(values, dict):
            schemas.append(values)
            inner += [value for e in place.examples if isinstance(e, dict) for value in e.values()]
        elif isinstance(key, int) and each.get("type") == "array":
            items = each.get("prefixItems", [])
            schemas.append(items[key] if key < len(items) else each.get("items", {}))
            inner += [value for e in place.examples if isinstance(e, list) for value in e]
    name = key if isinstance(key, str) and not inner else place.name
    found = _place(model, name, *schemas)
    return found._replace(examples=(*found.examples, *inner))


def _choices(schema: JsonObject) -> list[JsonValue]:
    return [schema["const"]] if "const" in schema else schema.get("enum", [])


def _made(model: type[BaseModel], schema: JsonObject, name: str) -> JsonValue:
    """Return a value that a schema accepts."""
    if choices := _choices(schema):
        return next(filter(None, choices))
    here = _Accepted(name, (schema,))
    kind = schema.get("type")
    if kind == "object" and "properties" in schema:
        fields = schema["properties"]
        shown = [key for key in fields if "examples" in fields[key]] or list(fields)
        keys = schema.get("required") or shown[:1]
        return {key: _below(model, here, key).example(model) for key in keys}
    if kind == "object":
        return {"name": _below(model, here, "name").example(model)}
    if kind == "array":
        count = max(len(schema.get("prefixItems", ())), 1)
        return [_below(model, here, index).example(model) for index in range(count)]
    if kind in ("integer", "number"):
        return max(2 if kind == "integer" else 0.5, schema.get("minimum", 0))
    return True if kind == "boolean" else f"my-{name.replace('_', '-')}"


def _one_line(value: JsonValue) -> str:
    """Return a value as YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=math.inf)
    return text.removesuffix("...\n").strip()
