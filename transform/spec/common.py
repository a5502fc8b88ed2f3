"""What every part of a spec is made of: frozen models, lists of names, types of columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator

if TYPE_CHECKING:
    from tensorflow_metadata.proto.v0 import schema_pb2


ColumnType = Literal["float", "int", "string"]

OTHERS = "others"


def is_glob(pattern: str) -> bool:
    """Whether `pattern` selects by wildcard (`V*`, `pickup_?`, `x[0-9]`) and not by name."""
    return any(sign in pattern for sign in "*?[")


def as_list(value: Any) -> Any:
    """Return a list of one entry for a YAML scalar: `columns: fare` is `columns: [fare]`."""
    return [value] if isinstance(value, str) else value


# For a union of Tag("name"), a word, and Tag("options"), a mapping: a mistake in one of them is
# reported once, not for the other one too.
NameOrOptions = Discriminator(lambda value: "name" if isinstance(value, str) else "options")

Names = Annotated[tuple[str, ...], BeforeValidator(as_list)]


class Model(BaseModel):
    """Frozen, and without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


INDICATOR_SUFFIX = "_missing"
OTHER_SUFFIX = "_other"


@dataclass(frozen=True)
class Multivalued:
    """Several values in a row, each of one type."""

    type: ColumnType
    description: str  # "a column of up to 4 values per row"
    most: int | None = None  # values in a row, where that is known


# A ColumnType, several values of one, or a text: why the column cannot be used.
SeenType = Multivalued | ColumnType | str
SeenTypes = Mapping[str, SeenType]


def describe(seen: SeenType) -> str:
    """Return the type as a message says it."""
    if isinstance(seen, Multivalued):
        return f"{seen.description} ({seen.type})"
    return f"of type {seen}" if seen in ("float", "int", "string") else seen


def column_types(schema: schema_pb2.Schema) -> dict[str, SeenType]:
    """Return column name -> type in a TFDV schema."""
    from tensorflow_metadata.proto.v0 import schema_pb2 as pb

    names: dict[int, ColumnType] = {pb.BYTES: "string", pb.INT: "int", pb.FLOAT: "float"}
    types: dict[str, SeenType] = {}
    for feature in schema.feature:
        width = 1
        for dim in feature.shape.dim:
            width *= dim.size
        if feature.type not in names:
            types[feature.name] = "a column that is neither float, int nor string"
        elif width > 1 or feature.value_count.max > 1:
            count = width if width > 1 else feature.value_count.max
            types[feature.name] = Multivalued(
                names[feature.type], f"a column of up to {count} values per row", count
            )
        else:
            types[feature.name] = names[feature.type]
    return types


def positions(name: str, length: int) -> tuple[str, ...]:
    """Return the columns that a list of fixed length becomes: `vector_0`, `vector_1`, ..."""
    return tuple(f"{name}_{i}" for i in range(length))
