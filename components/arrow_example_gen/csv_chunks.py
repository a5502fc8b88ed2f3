"""Cuts a CSV text into chunks of whole records and parses these with Arrow.

Arrow's own reader cuts blocks where they are full: it takes the LF of a CRLF at the edge of two
blocks for an empty line, within quotes too (apache/arrow cpp/src/arrow/csv/reader.cc,
`CSVBufferIterator`), and reads ahead on a thread that must not outlive Python.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from components.arrow_example_gen.csv_options import CsvOptions
from components.arrow_example_gen.csv_text import (
    LONGEST_RECORD,
    BadRecord,
    ByteRange,
    CsvRecords,
    OpenQuote,
    Utf8Stream,
)
from components.arrow_example_gen.decompress import open_decompressed

PART_BYTES = 2**23
_MOST_PARTS = 1_000  # of a file: the counts of each wait in memory until the types are known
_PIECE_BYTES = 2**20
_HEADER_BYTES = 2**16  # in which a record must begin, so that the first part has the header
_ONE_BYTE_A_CHARACTER = ("iso8859-", "cp125")
_ONE_BLOCK = 2**30  # bytes, more than a chunk has: Arrow must not cut it


class Chunk(NamedTuple):
    """Whole records.

    Attributes:
        data: their text in UTF-8.
        count: their number, without blank lines.
        rows: their cells if only Python's `csv` module reads them correctly: the scanner of newer
            versions of Arrow stops at a NUL (`_mm_cmpistrc`), and Arrow has no comments.
    """

    data: memoryview
    count: int
    rows: list[list[str]] | None = None


class _Ends(NamedTuple):
    """Line ends outside of quotes, and whether a quote is open at the end of the text."""

    places: np.ndarray
    is_open: bool

    @property
    def end(self) -> int:
        return int(self.places[-1]) + 1 if len(self.places) else 0


def chunks(stream: Utf8Stream, delimiter: str, options: CsvOptions, size: int) -> Iterator[Chunk]:
    """Yield the records of a text, some `size` bytes at a time; a longer record makes a longer one.

    Raises:
        BadRecord: a quote does not end, or a record is too long. Its line is that in the chunk.
        UnicodeDecodeError: the text is none.
    """
    left = b""
    while True:
        found = stream.read(max(size - len(left), len(left), 1))
        data, is_last = left + found, not found
        if data:
            end, *chunk = _cut(data, delimiter, options, is_last=is_last)
            if end:
                yield Chunk(memoryview(data)[:end], *chunk)
            left = data[end:]
        if is_last:
            return
        if len(left) > LONGEST_RECORD:
            raise BadRecord(1, f"a record is longer than {LONGEST_RECORD >> 20} MB.")


def _cut(data: bytes, delimiter: str, options: CsvOptions, *, is_last: bool) -> tuple[Any, ...]:
    """Return the place behind the last whole record, and the count, or the rows, up to there."""
    ends = _ends(data, delimiter, options)
    if ends is None:
        return _exact_cut(data, delimiter, options, is_last=is_last)
    if is_last and ends.is_open:
        raise OpenQuote(1, f"a cell begins with {options.quote} that does not end.")
    # A CRLF may be cut in two: its LF is an empty line of the next chunk.
    end = len(data) if is_last else ends.end
    # An end right after an end, or at the start, is an empty line.
    count = np.count_nonzero(np.diff(ends.places, prepend=-1) > 1)
    return end, int(count) + int(ends.end < end)


def _exact_cut(data: bytes, delimiter: str, options: CsvOptions, *, is_last: bool) -> Any:
    if not is_last:  # a line or a character at the end may not be whole
        data = data[: max(data.rfind(b"\n"), data.rfind(b"\r")) + 1]
    text = data.decode()
    records = CsvRecords(io.StringIO(text, newline=""), delimiter, options)
    rows: list[list[str]] = []
    try:
        for record in records:
            rows.append(record.cells)
    except OpenQuote:
        if is_last:
            raise
        return len(text[: records.start].encode()), len(rows), rows
    return len(data), len(rows), rows


def _ends(data: bytes, delimiter: str, options: CsvOptions) -> _Ends | None:
    """Return where records end; None if only Python's `csv` module can decide that."""
    start, quote = (options.comment or "").encode(), options.quote.encode()
    if b"\0" in data:
        return None
    if start and (data.startswith(start) or b"\n" + start in data or b"\r" + start in data):
        return None
    codes = np.frombuffer(data, np.uint8)
    is_end = codes == ord("\n")
    if b"\r" in data:
        is_end |= codes == ord("\r")
    ends = np.flatnonzero(is_end)
    if quote not in data:
        return _Ends(ends, is_open=False)
    quotes = np.flatnonzero(codes == quote[0])
    # Every other quote opens a cell, or follows one that it is doubled with. Another one, within a
    # cell without quotes, is a character as any other.
    opening = quotes[::2]
    may_open = np.isin(np.arange(256), [*b"\r\n", *quote, ord(delimiter)])
    if not may_open[codes[opening[opening > 0] - 1]].all():
        return None
    return _Ends(ends[np.searchsorted(quotes, ends) % 2 == 0], is_open=len(quotes) % 2 == 1)


def find_parts(file: str, delimiter: str, encoding: str, options: CsvOptions) -> list[ByteRange]:
    """Cut a file into parts of whole records, which several workers read, and return them in order.

    A line end within quotes ends no record, so the file is read once from its beginning. It is one
    part if it is small, compressed, or in an encoding in which a byte of a character may look like
    a quote. From where only Python's `csv` module finds the ends of records, the rest is one part.
    """
    places = [0]
    with closing(open_decompressed(file)) as stream:
        name = codecs.lookup(encoding).name
        marks_are_bytes = name == "utf-8" or name.startswith(_ONE_BYTE_A_CHARACTER)
        if marks_are_bytes and stream.seekable():  # compressed files are not
            size = stream.seek(0, 2)
            stream.seek(0)
            for place in _record_ends(stream, delimiter, options):
                if place - places[-1] >= max(PART_BYTES, size // _MOST_PARTS) and place < size:
                    places.append(place)
    return [ByteRange(*each) for each in zip(places, [*places[1:], None], strict=True)]


def _record_ends(stream: Any, delimiter: str, options: CsvOptions) -> Iterator[int]:
    """Yield places behind whole records, with the header before the first of them."""
    left = stream.read(len(codecs.BOM_UTF8))
    place = 0
    if left == codecs.BOM_UTF8:  # a quote behind it opens a cell
        left, place = b"", len(left)
    comment = options.comment.encode() if options.comment else None
    has_header = False
    while found := stream.read(_PIECE_BYTES):
        data = left + found
        if options.quote.encode() in data:
            ends = _ends(data, delimiter, options)
            end = None if ends is None else ends.end
        else:
            end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if end is None or len(data) - end > LONGEST_RECORD:
            return
        has_header = has_header or any(
            line and not (comment and line.startswith(comment))
            for line in data[: min(end, _HEADER_BYTES)].splitlines()
        )
        place, left = place + end, data[end:]
        if end and has_header:
            yield place


class ChunkParser:
    """Parses chunks of one file into columns of texts."""

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
        # Arrow would take a byte order mark out of the first cell.
        if chunk.data[: len(codecs.BOM_UTF8)] != codecs.BOM_UTF8:
            self._skipped = []
            table = pa_csv.read_csv(
                pa.BufferReader(pa.py_buffer(chunk.data)),
                read_options=self._read,
                parse_options=self._parse,
                convert_options=self._convert,
            )
            if table.num_rows + len(self._skipped) == chunk.count:
                if self._unreadable is not None:
                    self._unreadable += self._skipped
                parts = table.combine_chunks().to_batches()
                return parts[0].columns if parts else []
        text = io.StringIO(str(chunk.data, "utf-8"), newline="")
        records = CsvRecords(text, self._delimiter, self._options)
        return self._columns_of_rows([record.cells for record in records])

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
