"""TFRecord files of tf.Examples as Arrow blocks, and the record of what is wrong.

A file is a sequence of (length, its checksum, data, its checksum), numbers little-endian
(tensorflow/core/lib/io/record_writer.h); a compressed one is seen by its first bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from components.arrow_example_gen.columns import Block, Kind, Part, Table, kind_of
from components.arrow_example_gen.decompress import DamagedFile, open_decompressed

_BLOCK_BYTES = 2**22
_BLOCK_RECORDS = 1_000
_LENGTH = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_SHOWN: Mapping[Kind, str] = {"int": "int64_list", "float": "float_list", "string": "bytes_list"}
_Record = tuple[int, bytes]  # its number, from 1, and its data
_Seen: TypeAlias = tuple[Mapping[Kind, str], bool]
"""Of a feature: kind -> the first record with a value of it; whether a record has several."""


@dataclass(frozen=True)
class Features:
    """What all records say.

    Attributes:
        kinds: feature -> kind, None where no record has a value.
        several: the features of which a record holds several values.
    """

    kinds: Mapping[str, Kind | None]
    several: frozenset[str]


@dataclass(frozen=True)
class TfrecordTable(Table):
    """TFRecord files of tf.Examples."""

    def parts(self, file: str, *, whole: bool = False) -> list[Part]:
        """Return the file."""
        return [(file, 0, 0)]

    def read_blocks(
        self,
        part: Part,
        columns: Sequence[str] | None = None,
        *,
        unreadable: list[str] | None = None,
    ) -> Iterator[Block]:
        """Yield the records of a file; columns are lists of int64, float32 or bytes, or of nulls.

        Raises:
            ValueError: it is not a TFRecord file, or a record is truncated, damaged or no
                tf.Example: names file and record.
        """
        start = part[2]
        for records in _held(part[0], unreadable):
            for batch in _decoded(records, part[0], unreadable):
                block = Block(part, np.arange(start, start + batch.num_rows), batch)
                start += batch.num_rows
                if columns is not None:
                    arrays = [block.column(name) for name in columns]
                    cells = pa.RecordBatch.from_arrays(arrays, list(columns))
                    block = block._replace(cells=cells)
                yield block

    def count(self, block: Block) -> dict[str, _Seen]:
        """Return the features of a block."""
        features: dict[str, _Seen] = {}
        for name, column in zip(block.cells.schema.names, block.cells.columns, strict=True):
            kind = None if types.is_null(column.type) else kind_of(column.type)
            features[name] = {}, False
            if kind is not None:
                lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
                first = int((lengths > 0).argmax())
                if lengths[first]:
                    place = f"{block.part[0]}, record {block.places[first] + 1}"
                    features[name] = {kind: place}, bool(lengths.max() > 1)
        return features

    def together(self, counts: Iterable[Mapping[str, _Seen]]) -> dict[str, _Seen]:
        """Return the features of several blocks, in their order."""
        features: dict[str, _Seen] = {}
        for each in counts:
            for name, (kinds, several) in each.items():
                known, before = features.get(name, ({}, False))
                features[name] = {**known, **kinds, **known}, before or several
        return features

    def types(self, counts: Mapping[str, _Seen]) -> Features:
        """Return the kind of each feature.

        Raises:
            ValueError: a feature has values of two types: names two records.
        """
        for name, (kinds, _) in counts.items():
            if len(kinds) > 1:
                (kind, place), (other, elsewhere) = list(kinds.items())[:2]
                raise ValueError(
                    f"{elsewhere}: feature {name!r} is a {_SHOWN[other]}, and in {place} a "
                    f"{_SHOWN[kind]}. Write it as one of them."
                )
        first: dict[str, Kind | None] = {
            n: next(iter(kinds), None) for n, (kinds, _) in counts.items()
        }
        return Features(first, frozenset(name for name, (_, more) in counts.items() if more))


def _held(file: str, unreadable: list[str] | None) -> Iterator[list[_Record]]:
    """Yield the records of a file, as many as are decoded at once."""
    held: list[_Record] = []
    size = 0
    for place, data in _records(file, unreadable):
        held.append((place, data))
        size += len(data)
        if len(held) == _BLOCK_RECORDS or size >= _BLOCK_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def _decoded(
    records: list[_Record], file: str, unreadable: list[str] | None
) -> Iterator[pa.RecordBatch]:
    decode: Any = ExamplesToRecordBatchDecoder().DecodeBatch
    try:
        batches = [decode([data for _, data in records])]
    except RuntimeError:  # which says of which record neither place nor name
        batches = []
        for place, data in records:  # one each, whose types may differ
            try:
                batches.append(decode([data]))
            except RuntimeError:
                error = f"{file}, record {place}: is not a tf.Example"
                _skip(error, "Write it again, or take it out of the file", unreadable)
    yield from batches


def _skip(error: str, fix: str, unreadable: list[str] | None) -> None:
    """Write an error down, or raise it where rows are not to be skipped."""
    if unreadable is None:
        raise ValueError(f"{error}. {fix}.") from None
    unreadable.append(error)


def _records(file: str, unreadable: list[str] | None) -> Iterator[_Record]:
    place = 0
    try:
        with open_decompressed(file) as stream:
            while head := stream.read(_LENGTH.size):
                place += 1
                length = _length(head, file, place)
                body = stream.read(length + _CHECKSUM.size)
                if len(body) < length + _CHECKSUM.size:
                    raise ValueError(_cut_off(file, place))
                data = body[:length]
                if _CHECKSUM.unpack_from(body, length)[0] == _masked(data):
                    yield place, data
                else:
                    error = f"{file}, record {place}: its checksum is not that of its bytes"
                    _skip(error, "The file is damaged; write it again", unreadable)
    except DamagedFile as error:  # of what was read ahead
        raise ValueError(
            f"{file}, record {place + 1} or a later one: cannot be decompressed ({error.reason}). "
            "The file is damaged or not whole; write it again."
        ) from None


def _length(head: bytes, file: str, place: int) -> int:
    if len(head) == _LENGTH.size:
        length, checksum = _LENGTH.unpack(head)
        if checksum == _masked(head[:8]):
            return length
    if place == 1:
        raise ValueError(f"{file} is not a TFRecord file.")
    if len(head) < _LENGTH.size:
        raise ValueError(_cut_off(file, place))
    raise ValueError(
        f"{file}, record {place}: damaged, its length is unknown, so that neither it nor what "
        "follows can be read. Write the file again."
    )


def _cut_off(file: str, place: int) -> str:
    return (
        f"{file}, record {place}: the file ends in the middle of it. It is not whole; write or "
        "copy it again."
    )


def _masked(data: bytes) -> int:
    """Return the format's checksum: CRC32C, rotated, plus a constant."""
    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
