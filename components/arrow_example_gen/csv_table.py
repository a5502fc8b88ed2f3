"""CSV files as one table: equal columns, and types that all cells give together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from components.arrow_example_gen import csv_blocks, csv_types
from components.arrow_example_gen.csv_blocks import CsvHeader
from components.arrow_example_gen.csv_options import CsvOptions
from components.arrow_example_gen.csv_parts import Part, find_parts
from components.arrow_example_gen.csv_text import WHOLE, ByteRange
from components.arrow_example_gen.csv_types import Counts, CsvTypes, MixedColumn


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

    def parts(self, file: str) -> list[Part]:
        """Return what several workers read of one of the files, in its order."""
        header = self.headers[file]
        return find_parts(file, header.delimiter, header.encoding, self.options)

    def blocks(
        self, file: str, columns: Sequence[str] | None = None, *, part: ByteRange = WHOLE
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one of the files, see `csv_blocks.blocks`."""
        wanted = self.columns if columns is None else columns
        return csv_blocks.blocks(file, self.headers[file], self.options, wanted, part=part)

    def count(self, block: pa.RecordBatch) -> Counts:
        """Count by column what the cells of a block look like."""
        return csv_types.count(block, self.options.formatted)

    def types(self, counts: Counts) -> CsvTypes:
        """Decide the types of the columns.

        Args:
            counts: of all rows, or of as many as were looked at.

        Raises:
            ValueError: there is a text among the numbers of a column: names file and line.
        """
        try:
            delimiter = self.headers[self.files[0]].delimiter
            return csv_types.decide(counts, self.options, delimiter)
        except MixedColumn as error:
            raise ValueError(f"{self._place(error)}: {error}") from None

    def _place(self, mixed: MixedColumn) -> str:
        for file, header in self.headers.items():
            found = csv_blocks.find(
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
    headers = {file: csv_blocks.read_header(file, options) for file in files}
    for file, header in headers.items():
        csv_blocks.same_columns(header, headers[files[0]], file, files[0])
    return CsvTable(headers, options)
