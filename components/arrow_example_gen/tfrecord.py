"""TFRecord files of tf.Examples as Arrow blocks, and the record of what is wrong.

A file is a sequence of (length, its checksum, data, its checksum), numbers little-endian
(tensorflow/core/lib/io/record_writer.h); a compressed one is seen by its first bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import google_crc32c
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types
from tfx_bsl.coders import example_coder

from components.arrow_example_gen.columns import Kind, as_lists, kind_of
from components.arrow_example_gen.decompress import DamagedFile, open_decompressed

BLOCK_BYTES = 2**22
BLOCK_RECORDS = 1_000
_LENGTH = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")


class Block(NamedTuple):
    """Records of a file, decoded.

    Attributes:
        start: number of the first among those of the file that could be read, from 0.
        rows: how many.
        batch: a column of lists for each feature that one of them has, of int64, float32 or bytes,
            or of nulls where no record has a value for it.
        places: number of each record in the file, from 1, for messages.
    """

    start: int
    rows: int
    batch: pa.RecordBatch
    places: Sequence[int]


class _Record(NamedTuple):
    place: int
    data: bytes


def blocks(file: str, *, unreadable: list[str] | None = None) -> Iterator[Block]:
    """Yield the records of a file.

    Args:
        file: its path, on any file system that Beam knows.
        unreadable: gets a line for each damaged record and for each that is not a tf.Example, which
            are skipped where the next one can be found; None: such a record is an error.

    Raises:
        ValueError: it is not a TFRecord file, a record is truncated, damaged or no tf.Example, or
            two records have a feature of different types: names file and record.
    """
    start = 0
    held: list[_Record] = []
    size = 0
    for record in _records(file, unreadable):
        held.append(record)
        size += len(record.data)
        if len(held) == BLOCK_RECORDS or size >= BLOCK_BYTES:
            for block in _decoded(held, start, file, unreadable):
                yield block
                start += block.rows
            held, size = [], 0
    if held:
        yield from _decoded(held, start, file, unreadable)


def _decoded(
    records: list[_Record], start: int, file: str, unreadable: list[str] | None
) -> Iterator[Block]:
    decode = example_coder.ExamplesToRecordBatchDecoder().DecodeBatch
    try:
        batch = decode([record.data for record in records])
    except RuntimeError:  # which says of which record neither place nor name
        batches = [_alone(decode, record, file, unreadable) for record in records]
        for record, alone in zip(records, batches, strict=True):
            if alone is not None:  # one record each, whose types may differ
                yield Block(start, 1, alone, [record.place])
                start += 1
        return
    yield Block(start, len(records), batch, [record.place for record in records])


def _alone(decode: Any, record: _Record, file: str, unreadable: list[str] | None) -> Any:
    try:
        return decode([record.data])
    except RuntimeError:
        message = f"{file}, record {record.place}: is not a tf.Example"
        if unreadable is None:
            raise ValueError(f"{message}. Write it again, or take it out of the file.") from None
        unreadable.append(message)
        return None


def _records(file: str, unreadable: list[str] | None) -> Iterator[_Record]:
    place = 0
    try:
        with open_decompressed(file, _begins_a_record) as stream:
            while head := stream.read(_LENGTH.size):
                place += 1
                length = _length(head, file, place)
                body = stream.read(length + _CHECKSUM.size)
                if len(body) < length + _CHECKSUM.size:
                    raise ValueError(_cut_off(file, place))
                data = body[:length]
                if _CHECKSUM.unpack_from(body, length)[0] != _masked(data):
                    message = f"{file}, record {place}: its checksum is not that of its bytes"
                    if unreadable is None:
                        raise ValueError(f"{message}. The file is damaged; write it again.")
                    unreadable.append(message)
                    continue
                yield _Record(place, data)
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


def _begins_a_record(head: bytes) -> bool:
    """Whether a file begins with a record's length, whatever compression it looks like.

    The first length is gzip's first bytes in one of 2^24 files, and then not with a checksum that
    fits.
    """
    return len(head) >= _LENGTH.size and _LENGTH.unpack_from(head)[1] == _masked(head[:8])


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
