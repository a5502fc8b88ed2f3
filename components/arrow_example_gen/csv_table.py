"""CSV files as one table: equal columns, and types that all cells give together.

A block of rows has a column of texts for each named column; a missing value is null. What the texts
mean is decided when all of them are known (`csv_types`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.arrow_example_gen import csv_types
from components.arrow_example_gen.columns import Block, Part, Table
from components.arrow_example_gen.csv_header import CsvHeader, InvalidEncoding, read_header
from components.arrow_example_gen.csv_options import CsvOptions
from components.arrow_example_gen.csv_text import (
    WHOLE,
    BadRecord,
    ChunkParser,
    Record,
    Utf8Stream,
    chunks,
    find_parts,
    records_of_file,
)
from components.arrow_example_gen.csv_types import CellCounts, Counts, CsvTypes, MixedColumn

_BLOCK_BYTES = 2**20
_BYTES_A_COLUMN = 2**10  # a wide table has larger blocks: each has a fixed cost per column


@dataclass(frozen=True)
class CsvTable(Table):
    """CSV files of equal columns.

    Attributes:
        files: their paths.
        headers: file -> its first line.
        options: what the user says of them.
    """

    headers: Mapping[str, CsvHeader]
    options: CsvOptions

    @property
    def columns(self) -> tuple[str, ...]:
        """Names, in the order of the first file."""
        return self.headers[self.files[0]].columns

    @property
    def delimiter(self) -> str:
        """That of the first file."""
        return self.headers[self.files[0]].delimiter

    @property
    def dropped(self) -> str:
        """Which columns without a name are left out."""
        return "; ".join(header.dropped for header in self.headers.values() if header.dropped)

    def parts(self, file: str, *, whole: bool = False) -> list[Part]:
        """Return ranges of bytes of a file."""
        header = self.headers[file]
        ranges = (
            [WHOLE] if whole else find_parts(file, header.delimiter, header.encoding, self.options)
        )
        return [(file, each, 0) for each in ranges]

    def read_blocks(
        self,
        part: Part,
        columns: Sequence[str] | None = None,
        *,
        unreadable: list[str] | None = None,
    ) -> Iterator[Block]:
        """Yield the rows of a part as texts, null where there is no value, some 1 MB at a time.

        Raises:
            ValueError: a row has more or fewer cells than the header (and is not to be skipped), a
                quote does not end, or bytes are not text in the encoding: names file and line.
        """
        file, place, row = part
        header, options = self.headers[file], self.options
        names = list(self.columns if columns is None else columns)
        places = {name: i for i, name in enumerate(header.names) if i in header.kept}
        missing = [options.missing_words(name) for name in names]
        read = [places[name] for name in names]
        parser = ChunkParser(len(header.names), header.delimiter, options, read, unreadable)
        size = max(_BLOCK_BYTES, _BYTES_A_COLUMN * len(header.names))
        # The header is a record as others: its names may be there twice, or empty.
        rows_to_skip = _header_rows(options) if place[0] == 0 else 0
        try:
            with Utf8Stream(file, header.encoding, place) as stream:
                for chunk in chunks(stream, header.delimiter, options, size):
                    cells = parser.columns(chunk)
                    if cells and rows_to_skip:
                        cells, rows_to_skip = [column[rows_to_skip:] for column in cells], 0
                    if cells and len(cells[0]):
                        present = list(map(mask_missing, cells, missing))
                        batch = pa.RecordBatch.from_arrays(present, names)
                        yield Block(part, np.arange(row, row + batch.num_rows), batch)
                        row += batch.num_rows
        except (pa.ArrowInvalid, UnicodeDecodeError, BadRecord) as error:
            raise self._find_error(file, skip=unreadable is not None) or ValueError(
                f"{file}: cannot be read as CSV ({error})"
            ) from None

    def count(self, block: Block) -> Counts:
        """Count by column what the cells of a block look like."""
        return csv_types.count(block.cells)

    def together(self, counts: Iterable[Counts]) -> Counts:
        """Return the counts of several blocks."""
        return csv_types.together(list(counts) or [dict.fromkeys(self.columns, CellCounts())])

    def types(self, counts: Counts) -> CsvTypes:
        """Decide the types of the columns from the counts of all rows, or of those looked at.

        Raises:
            ValueError: there is a text among the numbers of a column: names file and line.
        """
        try:
            return csv_types.decide(counts, self.options, self.delimiter)
        except MixedColumn as error:
            raise ValueError(f"{self._place(error)}: {error}") from None

    def typed(self, block: Block, name: str, types: CsvTypes) -> pa.Array:
        """Return a column as int64, float64 or string."""
        return types.converted(name, block.column(name))

    def find(self, file: str, accepts: Callable[[Mapping[str, str]], bool]) -> Record | None:
        """Return the first row, name -> cell, of a file that `accepts`, or None."""
        header = self.headers[file]
        for record in self._rows(file):
            cells = record.cells
            if len(cells) == len(header.names) and accepts(
                {header.names[place]: cells[place] for place in header.kept}
            ):
                return record
        return None

    def _place(self, mixed: MixedColumn) -> str:
        def has_value(row: Mapping[str, str]) -> bool:
            return row[mixed.column].strip(" \t\r\n\v\f").removeprefix("+") == mixed.value

        for file in self.files:
            record = self.find(file, has_value)
            if record is not None:
                return f"{file}, line {record.line}"
        return ", ".join(self.files)

    def _rows(self, file: str) -> Iterator[Record]:
        """Yield the records below the header, if there is one."""
        header = self.headers[file]
        records = records_of_file(file, header.encoding, header.delimiter, self.options)
        return islice(records, _header_rows(self.options), None)

    def _find_error(self, file: str, *, skip: bool) -> ValueError | None:
        """Return the error of the first unreadable row; with `skip`, rows may have any length."""
        header = self.headers[file]
        number = len(header.names)
        try:
            for line, cells in self._rows(file):
                if len(cells) != number and not skip:
                    return ValueError(
                        f"{file}, line {line}: {len(cells)} cells under a "
                        f"{'header' if _header_rows(self.options) else 'first line'} of {number} "
                        f"columns. Correct it, or quote cells with {header.delimiter!r} in them."
                    )
        except BadRecord as error:
            return ValueError(f"{file}, line {error.line}: {error}")
        except UnicodeDecodeError:
            return InvalidEncoding(file, header.encoding, self.options)
        return None


def open_table(files: Sequence[str], options: CsvOptions) -> CsvTable:
    """Read the first line of each file, on any file system that Beam knows.

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
    return CsvTable(tuple(headers), headers, options)


def mask_missing(cells: pa.Array, words: Sequence[str]) -> pa.Array:
    """Return texts with null in place of the words that say that there is no value."""
    is_bytes = pa.types.is_binary(cells.type) or pa.types.is_large_binary(cells.type)
    trimmed = cells if is_bytes else pc.ascii_trim_whitespace(cells)
    known = pc.is_in(trimmed, value_set=pa.array(words, cells.type))
    if not pc.any(known).as_py():
        return cells
    # if_else with a scalar null reads beyond the end of a slice in Arrow 18.
    return pc.replace_with_mask(cells, known, pa.scalar(None, cells.type))


def _header_rows(options: CsvOptions) -> int:
    return int(options.header is not False)
