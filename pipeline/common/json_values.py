"""Names for JSON values, whose nesting type checkers cannot follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

# None, a bool, a number, a string, or a list or dict (with string keys) of these, nested.
Json: TypeAlias = Any
JsonObject: TypeAlias = dict[str, Json]
JsonMapping: TypeAlias = Mapping[str, Json]  # only read
