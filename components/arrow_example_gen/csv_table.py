"""CSV files as one table: equal columns, and types that all cells give together.

A block of rows has a column of texts for each named column; a missing value is null. What the texts
mean is decided when all of them are known (`csv_types`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.arrow_example_gen import csv_types
from components.arrow_example_gen.columns import Agreed, Rows, as_batch, as_lists
from components.arrow_example_gen.csv_chunks import ChunkParser, chunks, find_parts
from components.arrow_example_gen.csv_header import CsvHeader, InvalidEncoding, read_header
from components.arrow_example_gen.csv_options import CsvOptions
from components.arrow_example_gen.csv_text import (
    WHOLE,
    BadRecord,
    ByteRange,
    Record,
    Utf8Stream,
    records_of_file,
)
from components.arrow_example_gen.csv_types import CellCounts, Counts, CsvTypes, MixedColumn

BLOCK_BYTES = 2**20
_BYTES_A_COLUMN = 2**10  # a wide table has larger blocks: each has a fixed cost per column


@dataclass(frozen=True)
class CsvTable:
    """CSV files of equal columns.

    Attributes:
        headers: file -> its first line, in the order of the files.
        options: what the user says of them.
    """

    headers: Mapping[str, CsvHeader]
    options: CsvOptions

    @property
    def files(self) -> tuple[str, ...]:
        """Their paths."""
        return tuple(self.headers)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names, in the order of the first file."""
        return self.headers[self.files[0]].columns

    @property
    def dropped(self) -> str:
        """Which columns without a name are left out, for the log; empty where there are none."""
        return "; ".join(header.dropped for header in self.headers.values() if header.dropped)

    def parts(self, file: str) -> list[tuple[str, ByteRange]]:
        """Return what several workers read of one of the files, in its order."""
        header = self.headers[file]
        ranges = find_parts(file, header.delimiter, header.encoding, self.options)
        return [(file, each) for each in ranges]

    def blocks(
        self, file: str, columns: Sequence[str] | None = None, *, part: ByteRange = WHOLE
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one of the files, see `blocks`."""
        wanted = self.columns if columns is None else columns
        return blocks(file, self.headers[file], self.options, wanted, part=part)

    def count(self, block: pa.RecordBatch) -> Counts:
        """Count by column what the cells of a block look like."""
        return csv_types.count(block, self.options.formatted)

    def types(self, counts: Counts) -> CsvTypes:
        """Decide the types of the columns from the counts of all rows, or of those looked at.

        Raises:
            ValueError: there is a text among the numbers of a column: names file and line.
        """
        try:
            delimiter = self.headers[self.files[0]].delimiter
            return csv_types.decide(counts, self.options, delimiter)
        except MixedColumn as error:
            raise ValueError(f"{self._place(error)}: {error}") from None

    def examine(self, part: tuple[str, ByteRange]) -> tuple[int, Counts]:
        """Return the number of rows of a part, and the counts of its cells."""
        file, place = part
        rows, counts = 0, dict.fromkeys(self.columns, CellCounts())
        for block in self.blocks(file, part=ByteRange(*place)):
            rows += block.num_rows
            counts = csv_types.together([counts, self.count(block)])
        return rows, counts

    def agree(self, examined: Sequence[tuple[Any, tuple[int, Counts]]]) -> Agreed:
        """Return the types; a part to read is of a file, its bytes and the place of its first row.

        The parts are in the order of the files, whoever examined them first.
        """
        order = {file: number for number, file in enumerate(self.files)}
        in_order = sorted(examined, key=lambda each: (order[each[0][0]], each[0][1][0]))
        parts, rows = [], dict.fromkeys(self.files, 0)
        for (file, place), (count, _) in in_order:
            parts.append((file, place, rows[file]))
            rows[file] += count
        types = self.types(csv_types.together(counts for _, (_, counts) in in_order))
        return types.kinds, parts, types

    def read(self, part: tuple[str, ByteRange, int], agreed: Agreed) -> Iterator[Rows]:
        """Yield the rows of a part, see `Agreed`."""
        (file, place, start), (kinds, _, types) = part, agreed
        for block in self.blocks(file, part=ByteRange(*place)):
            places = np.arange(start, start + block.num_rows)
            yield places, as_batch(_lists(block, types), kinds, block.num_rows)
            start += block.num_rows

    def _place(self, mixed: MixedColumn) -> str:
        for file, header in self.headers.items():
            found = find(
                file,
                header,
                self.options,
                lambda row: row[mixed.column].strip(" \t\r\n\v\f").removeprefix("+") == mixed.value,
            )
            if found is not None:
                return f"{file}, line {found.line}"
        return ", ".join(self.files)


def open_table(files: Sequence[str], options: CsvOptions) -> CsvTable:
    """Read the first line of each file.

    Args:
        files: paths, on any file system that Beam knows.
        options: what the user says of them.

    Raises:
        ValueError: A file is not CSV, or its columns are not those of the first file.
    """
    headers = {file: read_header(file, options) for file in files}
    for file, header in headers.items():
        others = sorted(set(header.columns) ^ set(headers[files[0]].columns))
        if others:
            raise ValueError(
                f"{file}: its header differs from that of {files[0]}: {', '.join(others)}. "
                "All CSV files of one data set need the same columns."
            )
    return CsvTable(headers, options)


def blocks(
    file: str,
    header: CsvHeader,
    options: CsvOptions,
    columns: Sequence[str] | None = None,
    *,
    part: ByteRange = WHOLE,
    unreadable: list[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, or of a part of it, as texts, null where there is no value.

    Args:
        file: its path.
        header: what `read_header` found.
        options: what the user says of the file.
        columns: the columns to read, in this order; None: all.
        part: whole records; see `csv_chunks.find_parts`.
        unreadable: gets each row with more or fewer cells than the header, which is skipped;
            None: such a row is an error.

    Yields:
        Record batches of some 1 MB each.

    Raises:
        ValueError: a row has more or fewer cells than the header, a quote does not end, or bytes
            are not text in the encoding: names file and line.
    """
    wanted = list(header.columns if columns is None else columns)
    places = {name: place for place, name in enumerate(header.names) if place in header.kept}
    missing = [options.missing_words(name) for name in wanted]
    parser = ChunkParser(
        len(header.names), header.delimiter, options, [places[name] for name in wanted], unreadable
    )
    size = max(BLOCK_BYTES, _BYTES_A_COLUMN * len(header.names))
    # The header is a record as others: its names may be there twice, or empty.
    rows_to_skip = _header_rows(options) if part.start == 0 else 0
    try:
        with Utf8Stream(file, header.encoding, part) as stream:
            for chunk in chunks(stream, header.delimiter, options, size):
                cells = parser.columns(chunk)
                if cells and rows_to_skip:
                    cells, rows_to_skip = [column[rows_to_skip:] for column in cells], 0
                if cells and len(cells[0]):
                    present = map(mask_missing, cells, missing)
                    yield pa.RecordBatch.from_arrays(list(present), wanted)
    except (pa.ArrowInvalid, UnicodeDecodeError, BadRecord) as error:
        raise _find_error(file, header, options, skip=unreadable is not None) or ValueError(
            f"{file}: cannot be read as CSV ({error})"
        ) from None


def find(
    file: str,
    header: CsvHeader,
    options: CsvOptions,
    wanted: Callable[[Mapping[str, str]], bool],
) -> Record | None:
    """Return the first row, name -> cell, that `wanted` accepts; None without one."""
    for record in _rows(file, header, options):
        cells = record.cells
        if len(cells) == len(header.names) and wanted(
            {header.names[place]: cells[place] for place in header.kept}
        ):
            return record
    return None


def mask_missing(cells: pa.Array, words: Sequence[str]) -> pa.Array:
    """Return texts with null in place of the words that say that there is no value."""
    is_bytes = pa.types.is_binary(cells.type) or pa.types.is_large_binary(cells.type)
    trimmed = cells if is_bytes else pc.ascii_trim_whitespace(cells)
    known = pc.is_in(trimmed, value_set=pa.array(words, cells.type))
    if not pc.any(known).as_py():
        return cells
    # if_else with a scalar null reads beyond the end of a slice in Arrow 18.
    return pc.replace_with_mask(cells, known, pa.scalar(None, cells.type))


def _lists(block: pa.RecordBatch, types: CsvTypes) -> list[pa.ListArray]:
    """Return the columns of a block that have values, in the order of `types.kinds`."""
    return [
        as_lists(types.converted(name, block[block.schema.get_field_index(name)]), kind)
        for name, kind in types.kinds.items()
        if kind is not None
    ]


def _rows(file: str, header: CsvHeader, options: CsvOptions) -> Iterator[Record]:
    """Yield the records below the header, if there is one."""
    records = records_of_file(file, header.encoding, header.delimiter, options)
    return islice(records, _header_rows(options), None)


def _header_rows(options: CsvOptions) -> int:
    return int(options.header is not False)


def _find_error(
    file: str, header: CsvHeader, options: CsvOptions, *, skip: bool
) -> ValueError | None:
    """Return the error of the first unreadable row; with `skip`, rows of any length are allowed."""
    number = len(header.names)
    try:
        for line, cells in _rows(file, header, options):
            if len(cells) != number and not skip:
                return ValueError(
                    f"{file}, line {line}: {len(cells)} cells under a "
                    f"{'header' if _header_rows(options) else 'first line'} of {number} "
                    f"columns. Correct it, or quote cells with {header.delimiter!r} in them."
                )
    except BadRecord as error:
        return ValueError(f"{file}, line {error.line}: {error}")
    except UnicodeDecodeError:
        return InvalidEncoding(file, header.encoding, options)
    return None
