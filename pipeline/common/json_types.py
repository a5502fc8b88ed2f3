"""Types of the values in YAML and JSON documents."""

from __future__ import annotations

from typing import Any, TypeAlias

JsonValue: TypeAlias = Any
"""A text, a number, a bool, None, a list or a mapping."""

JsonObject: TypeAlias = dict[str, JsonValue]
"""A mapping of a document: key -> value."""
