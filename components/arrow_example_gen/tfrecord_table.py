"""TFRecord files as one table: types that all records give together, rows of all columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from components.arrow_example_gen.columns import Kind, as_lists, kind_of
from components.arrow_example_gen.tfrecord_blocks import Block

_SHOWN: Mapping[Kind, str] = {"int": "int64_list", "float": "float_list", "string": "bytes_list"}


class Seen(NamedTuple):
    """What is known of a feature.

    Attributes:
        kinds: kind -> the first record with a value of it, as a message names it.
        several: a record holds several values.
    """

    kinds: Mapping[Kind, str]
    several: bool = False


def seen_in(block: Block, file: str) -> dict[str, Seen]:
    """Return the features of a block."""
    found = {}
    for name, column in zip(block.batch.schema.names, block.batch.columns, strict=True):
        kind: Kind | None = None if types.is_null(column.type) else kind_of(column.type)
        found[name] = Seen({})
        if kind is not None:
            lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
            first = int((lengths > 0).argmax())
            if lengths[first]:
                kinds: dict[Kind, str] = {kind: f"{file}, record {block.places[first]}"}
                found[name] = Seen(kinds, bool(lengths.max() > 1))
    return found


def together(parts: Iterable[Mapping[str, Seen]]) -> dict[str, Seen]:
    """Merge what several blocks or files say of the features; the first one names the place."""
    found: dict[str, Seen] = {}
    for part in parts:
        for name, seen in part.items():
            known = found.get(name, Seen({}))
            kinds: dict[Kind, str] = {**known.kinds}
            for kind, where in seen.kinds.items():
                kinds.setdefault(kind, where)
            found[name] = Seen(kinds, known.several or seen.several)
    return found


def kinds_of(found: Mapping[str, Seen]) -> dict[str, Kind | None]:
    """Return feature -> kind, None where no record has a value.

    Raises:
        ValueError: a feature has values of two types: names two records.
    """
    kinds: dict[str, Kind | None] = {}
    for name, seen in found.items():
        if len(seen.kinds) > 1:
            (kind, place), (other, elsewhere) = list(seen.kinds.items())[:2]
            raise ValueError(
                f"{elsewhere}: feature {name!r} is a {_SHOWN[other]}, and in {place} a "
                f"{_SHOWN[kind]}. Write it as one of them."
            )
        kinds[name] = next(iter(seen.kinds), None)
    return kinds


def all_columns(block: Block, kinds: Mapping[str, Kind | None]) -> list[pa.ListArray]:
    """Return the columns of a block that have a kind, in their order, as lists."""
    places = {name: i for i, name in enumerate(block.batch.schema.names)}
    return [
        as_lists(block.batch[places[name]] if name in places else pa.nulls(block.rows), kind)
        for name, kind in kinds.items()
        if kind is not None
    ]


def examined(file: str, read: Iterable[Block]) -> dict[str, Seen]:
    """Return the features of a file."""
    return together(seen_in(block, file) for block in read)


def as_batches(
    read: Iterable[Block], kinds: Mapping[str, Kind | None], columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield blocks as record batches of equal columns; those without a value are of texts."""
    names = list(kinds if columns is None else columns)
    wanted: dict[str, Kind | None] = {name: kinds[name] or "string" for name in names}
    for block in read:
        yield pa.RecordBatch.from_arrays(all_columns(block, wanted), names)
