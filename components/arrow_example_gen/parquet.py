"""Parquet and Arrow files as one table: what their footers say, and their rows as record batches.

Folders named `key=value` below the folder that the files are found in are columns, as Hive, Spark
and pandas write them.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as types

from components.arrow_example_gen.columns import (
    Agreed,
    Block,
    Hole,
    Kind,
    Part,
    Table,
    as_lists,
    check_time_zone,
    holes,
    is_list,
    kind_of,
)
from components.arrow_example_gen.decompress import open_raw

_MAGIC = b"ARROW1"
"""What such a file begins with; one of the streaming format does not."""


class _IpcColumn(NamedTuple):
    path_in_schema: str
    is_stats_set: bool = False  # IPC files hold no statistics
    statistics: Any = None


class _IpcRowGroup:
    def __init__(self, batch: pa.RecordBatch):
        self._names = batch.schema.names
        self.num_columns, self.num_rows = batch.num_columns, batch.num_rows
        self.total_byte_size = batch.nbytes

    def column(self, place: int) -> _IpcColumn:
        return _IpcColumn(self._names[place])


class _IpcMetadata:
    def __init__(self, reader: pa.ipc.RecordBatchFileReader, rows: int):
        self._reader, self.num_rows = reader, rows

    def row_group(self, number: int) -> _IpcRowGroup:
        return _IpcRowGroup(self._reader.get_batch(number))


class _ArrowFile:
    """What is used of a pyarrow.parquet.ParquetFile, of an Arrow IPC file."""

    def __init__(self, stream: BinaryIO):
        """Open a file.

        Args:
            stream: a binary file that can be sought.

        Raises:
            pa.ArrowInvalid: it is not an Arrow IPC file.
        """
        self._reader = pa.ipc.open_file(stream)
        self.schema_arrow: pa.Schema = self._reader.schema
        self.num_row_groups: int = self._reader.num_record_batches

    @cached_property
    def metadata(self) -> _IpcMetadata:
        """The number of rows, which only the batches have."""
        rows = sum(self._reader.get_batch(i).num_rows for i in range(self.num_row_groups))
        return _IpcMetadata(self._reader, rows)

    def iter_batches(
        self, batch_size: int, *, row_groups: Sequence[int], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield some columns of record batches, in pieces."""
        places = [self.schema_arrow.get_field_index(name) for name in columns]
        for number in row_groups:
            read = self._reader.get_batch(number)
            batch = pa.RecordBatch.from_arrays([read[i] for i in places], list(columns))
            for start in range(0, batch.num_rows, batch_size):
                yield batch.slice(start, batch_size)


_FolderKeys = tuple[tuple[str, int | str | None], ...]
"""Key and value of each folder on a file's path, the outermost first."""

_MISSING = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_INT64 = range(-(2**63), 2**63)


def folder_keys(files: Sequence[str], folders: Sequence[str]) -> dict[str, _FolderKeys]:
    """Return the keys and values of each file's folders: ints if all values of a key are.

    Args:
        files: Paths.
        folders: Where they were found. Of each file the deepest one that it lies below counts.

    Raises:
        ValueError: A path names a key twice, or two files have different keys.
    """
    texts = {file: _texts(file, folders) for file in files}
    first = texts[files[0]]
    for file, found in texts.items():
        if list(found) != list(first):
            raise ValueError(
                f"{file}: its folders name {', '.join(found) or 'no keys'}, and those of "
                f"{files[0]} {', '.join(first) or 'none'}. All files need the same keys."
            )
    ints = {
        name
        for name in first
        if all(found[name] is None or _is_int(found[name]) for found in texts.values())
    }
    return {
        file: tuple(
            (name, int(value) if name in ints and value is not None else value)
            for name, value in found.items()
        )
        for file, found in texts.items()
    }


def _texts(file: str, folders: Sequence[str]) -> dict[str, str | None]:
    above = [each for each in folders if file.startswith(f"{each.rstrip('/')}/")]
    folder = max(above or folders, key=len)
    below = os.path.dirname(os.path.relpath(file, folder)) if folder else ""
    parts = [part.partition("=") for part in below.split(os.sep) if "=" in part]
    pairs = [
        (unquote(name), None if text == _MISSING else unquote(text)) for name, _, text in parts
    ]
    repeated = [name for name, times in Counter(name for name, _ in pairs).items() if times > 1]
    if repeated:
        raise ValueError(
            f"{file}: two of its folders are named {repeated[0]}=...; both would be the column "
            f"{repeated[0]!r}. Rename one."
        )
    return dict(pairs)


def _is_int(text: str | None) -> bool:
    return text is not None and bool(_INTEGER.fullmatch(text)) and int(text) in _INT64


_MOST_ROWS, _BATCH_BYTES = 2**14, 2**24
_BEYOND_INT64 = 2**63
_GROUP_BITS = 32  # of a row's place: its number in its row group; above them, the group's number


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
        whole: columns of lists of ints that must not lose a value.
    """

    columns: Mapping[str, Kind | None]
    lists: frozenset[str]
    empty: frozenset[str]
    left_out: Mapping[str, str]
    groups: Mapping[str, Sequence[int]]
    keys: Mapping[str, _FolderKeys]
    whole: frozenset[str] = frozenset()

    @property
    def dropped(self) -> str:
        """Which columns are left out."""
        found = ", ".join(f"{name} ({kind})" for name, kind in self.left_out.items())
        return f"Columns of types that examples cannot hold are left out: {found}" if found else ""

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
        file, number, start = part
        keys = dict(self.keys[file])
        names = list(self.columns if columns is None else columns)
        with open_file(file) as parquet:
            size = parquet.metadata.row_group(number)
            row_bytes = max(size.total_byte_size // max(size.num_rows, 1), 1)
            rows = max(1, min(_MOST_ROWS, _BATCH_BYTES // row_bytes))
            stored = [name for name in names if name not in keys]
            batches = parquet.iter_batches(rows, row_groups=[number], columns=stored)
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
                places = {name: i for i, name in enumerate(batch.schema.names)}
                arrays = [
                    pa.array([keys[name]] * batch.num_rows) if name in keys else batch[places[name]]
                    for name in names
                ]
                cells = pa.RecordBatch.from_arrays(arrays, names)
                yield Block(part, np.arange(start, start + cells.num_rows), cells)
                start += cells.num_rows

    def examine(self, part: Part) -> tuple[int, None]:
        """Return the number of rows of a row group."""
        return self.groups[part[0]][part[1]], None

    def agree(self, examined: Iterable[tuple[Part, tuple[int, Any]]]) -> Agreed:
        """Return what the footers say."""
        return self.columns, [part for file in self.files for part in self.parts(file)], None

    def count(self, block: Block) -> None:
        """Return nothing: the footers say it."""

    def together(self, counts: Iterable[None]) -> None:
        """Return nothing: the footers say it."""

    def types(self, counts: None) -> None:
        """Return nothing: the footers say it."""

    def decoded(
        self, block: Block, kinds: Mapping[str, Kind | None], types: Any = None
    ) -> list[pa.ListArray]:
        """Return columns of a block as `as_lists` has them.

        Raises:
            ValueError: a column's values do not fit its kind, or one of `whole` would lose a value:
                names file, row group, row and type.
        """
        lists = []
        for name, kind in kinds.items():
            if kind is None:
                continue
            column = block.column(name)
            if name in self.whole and kind == "int" and is_list(column.type):
                _refuse_holes(name, column, block)
            try:
                lists.append(as_lists(column, kind))
            except pa.ArrowException as error:
                row = next(i for i in range(len(column)) if not _converts(column.slice(i, 1), kind))
                raise ValueError(
                    f"{_place(block, row)}: column {name!r}, {column.type}, cannot be written as "
                    f"{kind} ({error}). Write it as another type, or leave it out of the file."
                ) from None
        return lists

    def first_hole(self, name: str) -> Hole | None:
        """Return the first row whose list gets shorter in tf.Example; None without one.

        Reads the whole column, where it is one of lists of ints.
        """
        if name not in self.lists or self.columns.get(name) != "int":
            return None
        for block in self.all_blocks([name]):
            column = block.cells[0]
            rows = block.places[holes(column)] if is_list(column.type) else block.places[:0]
            if len(rows):
                number = int(rows[0]) % (1 << _GROUP_BITS)
                return Hole(block.part[0], block.part[1], number, column.type)
        return None


def _place(block: Block, row: int) -> str:
    file, number, _ = block.part
    return f"{file}, row group {number}, row {block.places[row] % (1 << _GROUP_BITS)}"


def _refuse_holes(name: str, column: pa.Array, block: Block) -> None:
    found = holes(column)
    if len(found):
        raise ValueError(
            f"{_place(block, int(found[0]))}: column {name!r}, "
            f"{column.type}, has a list with a missing value. A list of ints in a tf.Example has "
            "no missing value: what follows it would move up by one. Write the lists as floats, "
            "where it is NaN, or, where the order does not matter, name the column in "
            "ArrowExampleGen(shorter_lists=[...])."
        )


def _converts(column: pa.Array, kind: Kind) -> bool:
    try:
        as_lists(column, kind)
    except pa.ArrowException:
        return False
    return True


def open_table(
    files: Sequence[str],
    folders: str | Sequence[str],
    shorter_lists: Sequence[str] = ("*",),
) -> ParquetTable:
    """Read the footers; and the uint64 columns whose range no footer has.

    Args:
        files: paths, on any file system that Beam knows.
        folders: where they were found: `key=value` folders below are columns. Several: of each
            file the deepest that it lies below.
        shorter_lists: names or globs of columns of ints whose lists may lose missing values.

    Raises:
        ValueError: a file is neither; one has two columns of one name; one lacks a column of the
            first, or has one that it lacks, or one of another type; or the folders' keys differ.
    """
    known: dict[str, _Column] = {}
    groups: dict[str, list[int]] = {}
    filled: set[str] = set()
    keys = folder_keys(files, [folders] if isinstance(folders, str) else folders)
    for file in files:
        with open_file(file) as parquet:
            _merge(known, _columns(parquet, file), file, files[0])
            found = [parquet.metadata.row_group(i) for i in range(parquet.num_row_groups)]
            groups[file] = [group.num_rows for group in found]
            filled = filled.union(*map(_filled, found))
    columns: dict[str, Kind | None] = {
        name: column.kind for name, column in known.items() if not column.left_out
    }
    for name, _ in keys[files[0]]:
        if name in known:
            raise ValueError(
                f"{files[0]}: column {name!r} is in the file, and a folder on its path is named "
                f"{name}=...; rename one."
            )
        whole = any(isinstance(dict(found)[name], int) for found in keys.values())
        columns[name] = "int" if whole else "string"
    lists = frozenset(name for name, column in known.items() if column.several)
    return ParquetTable(
        tuple(files),
        columns,
        lists,
        frozenset(name for name, column in known.items() if not column.left_out) - filled,
        {name: str(column.type) for name, column in known.items() if column.left_out},
        groups,
        keys,
        frozenset(n for n in lists if not any(fnmatch.fnmatchcase(n, p) for p in shorter_lists)),
    )


@contextlib.contextmanager
def open_file(path: str) -> Iterator[pq.ParquetFile | _ArrowFile]:
    """Open a file of either format, on any file system that Beam knows.

    Raises:
        ValueError: it is neither a Parquet nor an Arrow file.
    """
    with open_raw(path) as stream:
        try:
            is_arrow = stream.read(len(_MAGIC)) == _MAGIC
            stream.seek(0)
            opened = _ArrowFile(stream) if is_arrow else pq.ParquetFile(stream)
        except pa.ArrowInvalid as error:
            raise ValueError(f"{path} is not a Parquet or Arrow file ({error}).") from None
        yield opened


class _Column(NamedTuple):
    type: pa.DataType
    kind: Kind | None  # None: only nulls, or left out
    several: bool
    left_out: bool


def _columns(parquet: pq.ParquetFile | _ArrowFile, file: str) -> dict[str, _Column]:
    found: dict[str, _Column] = {}
    repeated = [name for name, times in Counter(parquet.schema_arrow.names).items() if times > 1]
    if repeated:
        raise ValueError(
            f"{file}: the columns must have different names; repeated: {', '.join(repeated)}. "
            "Rename one of each, or leave it out of the file."
        )
    for field in parquet.schema_arrow:
        kind = kind_of(field.type)
        value = field.type.value_type if is_list(field.type) else field.type
        try:
            check_time_zone(value)
        except ValueError as error:
            raise ValueError(
                f"{file}: column {field.name!r} is {error}, or leave it out of the file."
            ) from None
        if types.is_uint64(value) and _exceeds_int64(parquet, field.name, is_list(field.type)):
            kind = "string"
        nulls = types.is_null(value)
        found[field.name] = _Column(
            field.type, kind, is_list(field.type), left_out=kind is None and not nulls
        )
        if not field.name:
            raise ValueError(f"{file}: a column has an empty name. Name it.")
    return found


def _filled(group: pq.RowGroupMetaData) -> set[str]:
    """Return columns of a row group's metadata that hold a value, or may hold one."""
    filled: set[str] = set()
    for column in map(group.column, range(group.num_columns)):
        known = column.is_stats_set and column.statistics.has_null_count
        if not known or column.statistics.null_count < column.num_values:
            # A name may itself contain dots; a nested value's path has its column's name first.
            filled |= {column.path_in_schema, column.path_in_schema.partition(".")[0]}
    return filled


def _exceeds_int64(parquet: pq.ParquetFile | _ArrowFile, name: str, several: bool) -> bool:
    for number in range(parquet.num_row_groups):
        highest = None if several else _highest_by_footer(parquet, name, number)
        if highest is None:
            for batch in parquet.iter_batches(_MOST_ROWS, row_groups=[number], columns=[name]):
                values = batch[0].flatten() if several else batch[0]
                highest = max(highest or 0, pc.max(values).as_py() or 0)
        if highest is not None and highest >= _BEYOND_INT64:
            return True
    return False


def _highest_by_footer(parquet: pq.ParquetFile | _ArrowFile, name: str, number: int) -> int | None:
    group = parquet.metadata.row_group(number)
    for column in map(group.column, range(group.num_columns)):
        if column.path_in_schema == name and column.is_stats_set and column.statistics.has_min_max:
            return column.statistics.max
    return None


def _merge(known: dict[str, _Column], found: dict[str, _Column], file: str, first: str) -> None:
    if not known:
        known.update(found)
        return
    for name in sorted(set(known) ^ set(found)):
        lacks, has = (file, first) if name in known else (first, file)
        raise ValueError(
            f"{lacks}: lacks the column {name!r} that {has} has. All Parquet files of one data set "
            "need the same columns."
        )
    for name, column in found.items():
        before = known[name]
        if types.is_null(before.type):
            known[name] = column
        elif types.is_null(column.type):
            continue
        elif types.is_uint64(column.type) and types.is_uint64(before.type):
            known[name] = column if column.kind == "string" else before
        elif (before.kind, before.several, before.left_out) != (
            column.kind,
            column.several,
            column.left_out,
        ):
            raise ValueError(
                f"{file}: column {name!r} is {column.type}, and {before.type} in {first}. All "
                "Parquet files of one data set need the same types; write it again as one of them."
            )
