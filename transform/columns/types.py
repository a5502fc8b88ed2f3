"""Columns before any tensor is there: types as a TFDV schema says, groups with their columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transform.spec.common import ColumnType
from transform.spec.group import Group

if TYPE_CHECKING:
    from tensorflow_metadata.proto.v0 import schema_pb2

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


@dataclass(frozen=True)
class ResolvedGroup:
    """A group and the columns that it takes, in order."""

    group: Group
    columns: tuple[str, ...]


def positions(name: str, length: int) -> tuple[str, ...]:
    """Return the columns that a list of fixed length becomes: `vector_0`, `vector_1`, ..."""
    return tuple(f"{name}_{i}" for i in range(length))
