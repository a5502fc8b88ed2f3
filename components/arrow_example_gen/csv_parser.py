"""Parses chunks of CSV into columns of texts: with Arrow, or Python's `csv` where they differ."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.csv as pa_csv

from components.arrow_example_gen.csv_chunks import Chunk, exact_rows
from components.arrow_example_gen.csv_options import CsvOptions
from components.arrow_example_gen.csv_records import BadRecord

_ONE_BLOCK = 2**30  # bytes, more than a chunk has: Arrow must not cut it


class ChunkParser:
    """Parses chunks of one file."""

    def __init__(
        self,
        width: int,
        delimiter: str,
        options: CsvOptions,
        wanted: Sequence[int],
        unreadable: list[str] | None,
    ):
        """Prepare Arrow's options once: this is slow for thousands of columns.

        Args:
            width: number of cells of a record.
            delimiter: between them.
            options: how the file is written.
            wanted: places of the columns to return.
            unreadable: gets records of another number of cells; None: they are errors.
        """
        self._width, self._delimiter, self._options = width, delimiter, options
        self._wanted, self._unreadable = wanted, unreadable
        self._skipped: list[str] = []
        names = [f"f{place}" for place in range(width)]
        included = [names[place] for place in wanted]
        self._read = pa_csv.ReadOptions(
            column_names=names, use_threads=False, block_size=_ONE_BLOCK
        )
        self._parse = pa_csv.ParseOptions(
            delimiter=delimiter,
            quote_char=options.quote,
            newlines_in_values=True,
            invalid_row_handler=None if unreadable is None else self._skip_row,
        )
        self._convert = pa_csv.ConvertOptions(
            column_types=dict.fromkeys(included, pa.string()),
            include_columns=included,
            strings_can_be_null=False,
        )

    def columns(self, chunk: Chunk) -> list[pa.Array]:
        """Return the wanted columns of a chunk; none of a chunk without records.

        Raises:
            BadRecord: a record has more or fewer cells, and such are errors.
            pa.ArrowInvalid: the same, or bytes are no UTF-8.
        """
        if chunk.count == 0:
            return []
        if chunk.rows is not None:
            return self._columns_of_rows(chunk.rows)
        if chunk.data[: len(BOM_UTF8)] == BOM_UTF8:  # of the first cell; Arrow would take it out
            return self._columns_of_rows(exact_rows(chunk.data, self._delimiter, self._options))
        self._skipped = []
        table = pa_csv.read_csv(
            pa.BufferReader(pa.py_buffer(chunk.data)),
            read_options=self._read,
            parse_options=self._parse,
            convert_options=self._convert,
        )
        if table.num_rows + len(self._skipped) != chunk.count:
            return self._columns_of_rows(exact_rows(chunk.data, self._delimiter, self._options))
        if self._unreadable is not None:
            self._unreadable += self._skipped
        parts = table.combine_chunks().to_batches()
        return parts[0].columns if parts else []

    def _skip_row(self, row: pa_csv.InvalidRow) -> str:
        self._skipped.append(row.text)
        return "skip"

    def _columns_of_rows(self, rows: list[list[str]]) -> list[pa.Array]:
        whole = [row for row in rows if len(row) == self._width]
        if len(whole) < len(rows):
            others = [row for row in rows if len(row) != self._width]
            if self._unreadable is None:
                raise BadRecord(1, f"{len(others[0])} cells under a header of {self._width}")
            self._unreadable += [self._delimiter.join(row) for row in others]
        columns = list(zip(*whole, strict=True))
        return [pa.array(columns[place], pa.string()) for place in self._wanted] if whole else []
