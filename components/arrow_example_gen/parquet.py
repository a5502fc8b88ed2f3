"""Parquet and Arrow files as one table: what their footers say, and their rows as record batches.

Folders named `key=value` below the folder that the files are found in are columns, as Hive, Spark
and pandas write them.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as types

from components.arrow_example_gen.columns import (
    Agreed,
    Block,
    Kind,
    Part,
    Table,
    as_lists,
    check_time_zone,
    fits,
    is_list,
    kind_of,
)
from components.arrow_example_gen.decompress import open_raw

_ARROW = b"ARROW1"
"""What an Arrow file begins with; one of the streaming format does not."""

_MOST_ROWS, _BATCH_BYTES = 2**14, 2**24
_GROUP_BITS = 32  # of a row's place: its number in its row group; above them, the group's number
_FolderKeys = tuple[tuple[str, int | str | None], ...]
"""Key and value of each folder on a file's path, the outermost first."""

_MISSING = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_INT64 = range(-(2**63), 2**63)


def _folder_keys(files: Sequence[str], folders: Sequence[str]) -> dict[str, _FolderKeys]:
    """Return the keys and values of each file's folders: ints if all values of a key are.

    Of the folders where files were found, the deepest one above a file counts.

    Raises:
        ValueError: A path names a key twice, or two files have different keys.
    """
    texts = {file: _texts(file, folders) for file in files}
    first = texts[files[0]]
    for file, keys in texts.items():
        if list(keys) != list(first):
            raise ValueError(
                f"{file}: its folders name {', '.join(keys) or 'no keys'}, and those of "
                f"{files[0]} {', '.join(first) or 'none'}. All files need the same keys."
            )
    ints = {name for name in first if all(_is_int(keys[name]) for keys in texts.values())}
    return {
        file: tuple(
            (name, int(value) if value is not None and name in ints else value)
            for name, value in keys.items()
        )
        for file, keys in texts.items()
    }


def _texts(file: str, folders: Sequence[str]) -> dict[str, str | None]:
    above = [each for each in folders if file.startswith(f"{each.rstrip('/')}/")]
    folder = max(above or folders, key=len)
    below = os.path.dirname(os.path.relpath(file, folder)) if folder else ""
    keys: dict[str, str | None] = {}
    for name, _, text in (part.partition("=") for part in below.split(os.sep) if "=" in part):
        if unquote(name) in keys:
            raise ValueError(
                f"{file}: two of its folders are named {name}=...; both would be the column "
                f"{name!r}. Rename one."
            )
        keys[unquote(name)] = None if text == _MISSING else unquote(text)
    return keys


def _is_int(text: str | None) -> bool:
    return text is None or (bool(_INTEGER.fullmatch(text)) and int(text) in _INT64)


@dataclass(frozen=True)
class ParquetTable(Table):
    """Parquet files of equal columns.

    Attributes:
        files: their paths.
        columns: name -> what tf.Example makes of it, None where no file has a value for it.
        lists: those of which a row may hold several values.
        empty: those that have no value in any row, by the footers.
        left_out: name -> the Arrow type that tf.Example cannot hold.
        groups: file -> the number of rows of each of its row groups.
        keys: file -> columns by the names of its folders.
    """

    columns: Mapping[str, Kind | None]
    lists: frozenset[str]
    empty: frozenset[str]
    left_out: Mapping[str, str]
    groups: Mapping[str, Sequence[int]]
    keys: Mapping[str, _FolderKeys]

    @property
    def dropped(self) -> str:
        """Which columns are left out."""
        names = ", ".join(f"{name} ({kind})" for name, kind in self.left_out.items())
        return f"Columns of types that examples cannot hold are left out: {names}" if names else ""

    @property
    def rows(self) -> int:
        """Their number."""
        return sum(map(sum, self.groups.values()))

    def parts(self, file: str, *, whole: bool = False) -> list[Part]:
        """Return the row groups of a file."""
        return [(file, number, number << _GROUP_BITS) for number in range(len(self.groups[file]))]

    def read_blocks(
        self,
        part: Part,
        columns: Sequence[str] | None = None,
        *,
        unreadable: list[str] | None = None,
    ) -> Iterator[Block]:
        """Yield the rows of a row group, with the columns of its folders.

        Raises:
            ValueError: it cannot be read: the file is damaged.
        """
        file, number, row = part
        keys = dict(self.keys[file])
        names = list(self.columns if columns is None else columns)
        stored = [name for name in names if name not in keys]
        with _opened(file) as stream:
            batches = _batches(stream, number, stored)
            while True:
                try:
                    batch = next(batches, None)
                except (pa.ArrowException, OSError) as error:
                    raise ValueError(
                        f"{file}, row group {number}: cannot be read ({error}). The file is "
                        "damaged; write it again."
                    ) from None
                if batch is None:
                    return
                rows = batch.num_rows
                arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
                arrays |= {name: pa.array([value] * rows) for name, value in keys.items()}
                cells = pa.RecordBatch.from_arrays([arrays[name] for name in names], names)
                yield Block(part, np.arange(row, row + rows), cells)
                row += rows

    def examine(self, part: Part) -> tuple[int, None]:
        """Return the number of rows of a row group."""
        return self.groups[part[0]][part[1]], None

    def agree(self, examined: Iterable[tuple[Part, tuple[int, Any]]]) -> Agreed:
        """Return what the footers say."""
        return self.columns, [part for file in self.files for part in self.parts(file)], None

    def decoded(
        self, block: Block, kinds: Mapping[str, Kind | None], types: Any = None
    ) -> list[pa.ListArray]:
        """Return columns of a block as `as_lists` has them.

        Raises:
            ValueError: a column's values do not fit its kind, or a value is missing in a list of
                several ints: names file, row group, row and type.
        """
        lists = []
        for name, kind in kinds.items():
            if kind is None:
                continue
            column = block.column(name)
            try:
                lists.append(as_lists(column, kind))
            except pa.ArrowException as error:
                row = next(i for i in range(len(column)) if not fits(column.slice(i, 1), kind))
                place = block.places[row] % (1 << _GROUP_BITS)
                raise ValueError(
                    f"{block.part[0]}, row group {block.part[1]}, row {place}: column {name!r}, "
                    f"{column.type}, cannot be written as {kind} ({error}). Write it as another "
                    "type, such as text, or floats with NaN in lists, or leave it out of the file."
                ) from None
        return lists


def open_table(files: Sequence[str], folders: str | Sequence[str]) -> ParquetTable:
    """Read the footers of files, on any file system that Beam knows.

    `key=value` folders below `folders`, where the files were found, are columns.

    Raises:
        ValueError: a file is neither; one has two columns of one name; one lacks a column of the
            first, or has one that it lacks, or one of another type; or the folders' keys differ.
    """
    known: dict[str, pa.DataType] = {}
    groups: dict[str, list[int]] = {}
    filled: set[str] = set()
    large: set[str] = set()
    keys = _folder_keys(files, [folders] if isinstance(folders, str) else folders)
    for file in files:
        with _opened(file) as stream:
            schema, groups[file], present, beyond = _footer(stream)
        _check_columns(schema, file)
        known = known or dict(zip(schema.names, schema.types, strict=True))
        known = _merged(known, schema, file, files[0])
        filled |= present
        large |= beyond
    left_out = {n: str(t) for n, t in known.items() if kind_of(t) is None and not types.is_null(t)}
    columns: dict[str, Kind | None] = {
        name: "string" if name in large else kind_of(kind)
        for name, kind in known.items()
        if name not in left_out
    }
    empty = frozenset(set(columns) - filled)
    for name, _ in keys[files[0]]:
        if name in known:
            raise ValueError(
                f"{files[0]}: column {name!r} is in the file, and a folder on its path is named "
                f"{name}=...; rename one."
            )
        is_whole = any(isinstance(dict(each)[name], int) for each in keys.values())
        columns[name] = "int" if is_whole else "string"
    lists = frozenset(name for name, kind in known.items() if is_list(kind))
    return ParquetTable(tuple(files), columns, lists, empty, left_out, groups, keys)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    with open_raw(path) as stream:
        try:
            yield stream
        except pa.ArrowInvalid as error:
            raise ValueError(f"{path} is not a Parquet or Arrow file ({error}).") from None


def _is_arrow(stream: BinaryIO) -> bool:
    head = stream.read(len(_ARROW))
    stream.seek(0)
    return head == _ARROW


def _footer(stream: BinaryIO) -> tuple[pa.Schema, list[int], set[str], set[str]]:
    """Return the columns, the rows of each row group, and which columns may have a value.

    And which have a whole number that int64 does not hold; of Parquet by the statistics.
    """
    if _is_arrow(stream):
        reader = pa.ipc.open_file(stream)
        batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        unsigned = [i for i, kind in enumerate(reader.schema.types) if types.is_uint64(kind)]
        large = {
            reader.schema.names[i]
            for i in unsigned
            for batch in batches
            if (pc.max(batch[i]).as_py() or 0) not in _INT64
        }
        sizes = [batch.num_rows for batch in batches]
        return reader.schema, sizes, set(reader.schema.names), large
    parquet = pq.ParquetFile(stream)
    groups = [parquet.metadata.row_group(i) for i in range(parquet.num_row_groups)]
    unsigned = {field.name for field in parquet.schema_arrow if types.is_uint64(field.type)}
    filled, large = set[str](), set[str]()
    for column in (group.column(i) for group in groups for i in range(group.num_columns)):
        has_count = column.is_stats_set and column.statistics.has_null_count
        if not has_count or column.statistics.null_count < column.num_values:
            # A name may itself contain dots; a nested value's path has its column's name first.
            filled |= {column.path_in_schema, column.path_in_schema.partition(".")[0]}
        is_known = column.path_in_schema in unsigned and column.is_stats_set
        if is_known and (column.statistics.max or 0) not in _INT64:
            large.add(column.path_in_schema)
    return parquet.schema_arrow, [group.num_rows for group in groups], filled, large


def _batches(stream: BinaryIO, number: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield some columns of a row group of Parquet, or of a record batch of Arrow, in pieces."""

    def size(rows: int, nbytes: int) -> int:
        return max(1, min(_MOST_ROWS, _BATCH_BYTES // max(nbytes // max(rows, 1), 1)))

    if _is_arrow(stream):
        whole = pa.ipc.open_file(stream).get_batch(number)
        places = [whole.schema.get_field_index(name) for name in columns]
        batch = pa.RecordBatch.from_arrays([whole[i] for i in places], list(columns))
        rows = size(whole.num_rows, whole.nbytes)
        yield from (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))
    else:
        parquet = pq.ParquetFile(stream)
        group = parquet.metadata.row_group(number)
        rows = size(group.num_rows, group.total_byte_size)
        yield from parquet.iter_batches(rows, row_groups=[number], columns=columns)


def _check_columns(schema: pa.Schema, file: str) -> None:
    repeated = [name for name, times in Counter(schema.names).items() if times > 1]
    if repeated:
        raise ValueError(
            f"{file}: the columns must have different names; repeated: {', '.join(repeated)}. "
            "Rename one of each, or leave it out of the file."
        )
    for field in schema:
        if not field.name:
            raise ValueError(f"{file}: a column has an empty name. Name it.")
        try:
            check_time_zone(field.type.value_type if is_list(field.type) else field.type)
        except ValueError as error:
            raise ValueError(
                f"{file}: column {field.name!r} is {error}, or leave it out of the file."
            ) from None


def _merged(
    known: dict[str, pa.DataType], schema: pa.Schema, file: str, first: str
) -> dict[str, pa.DataType]:
    """Return the types of the files before and of this one: the first that is not of nulls."""
    for name in sorted(set(known) ^ set(schema.names)):
        lacks, has = (file, first) if name in known else (first, file)
        raise ValueError(
            f"{lacks}: lacks the column {name!r} that {has} has. All Parquet files of one data set "
            "need the same columns."
        )
    merged = {}
    for name, before in known.items():
        kind = schema.field(name).type
        merged[name] = kind if types.is_null(before) else before
        same = (kind_of(kind), is_list(kind)) == (kind_of(before), is_list(before))
        if not (same or types.is_null(kind) or types.is_null(before)):
            raise ValueError(
                f"{file}: column {name!r} is {kind}, and {before} in {first}. All "
                "Parquet files of one data set need the same types; write it again as one of them."
            )
    return merged
