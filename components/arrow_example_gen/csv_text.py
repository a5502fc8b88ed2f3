"""The text of a CSV file: decoded, cut into chunks of whole records, and parsed by Arrow.

Python's `csv` module reads records slowly, and decides where Arrow's reader differs from it. Arrow
does not cut the file: it takes the LF of a CRLF at the edge of two blocks for an empty line, within
quotes too (apache/arrow cpp/src/arrow/csv/reader.cc, `CSVBufferIterator`), and reads ahead on a
thread that must not outlive Python.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from components.arrow_example_gen.csv_options import CsvOptions
from components.arrow_example_gen.decompress import open_decompressed

_LONGEST_RECORD = 2**28  # bytes
_PART_BYTES = 2**23
_MOST_PARTS = 1_000  # of a file: the counts of each wait in memory until the types are known
_PIECE_BYTES = 2**20
_ONE_BYTE_A_CHARACTER = ("iso8859-", "cp125")
_ONE_BLOCK = 2**30  # bytes, more than a chunk has: Arrow must not cut it
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins as UTF-16's does
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

csv.field_size_limit(_LONGEST_RECORD)

_ByteRange: TypeAlias = tuple[int, int | None]
"""A part of a file: where it starts, and where it ends; None: at the end of the file."""

WHOLE: _ByteRange = (0, None)


def encoding_of(start: bytes) -> str:
    """Return the encoding by a file's first bytes: a byte order mark, or NULs of UTF-16."""
    nuls = tuple(code == 0 for code in start[:4])  # two ASCII characters have one each
    unmarked = {(False, True) * 2: "utf-16-le", (True, False) * 2: "utf-16-be"}
    marked = next((name for mark, name in _MARKS if start.startswith(mark)), None)
    return marked or unmarked.get(nuls, "utf-8")


class Utf8Stream:
    """Reads a file as UTF-8, whatever its encoding.

    Of a `part`, which is from the start of a character to the end of one, the file must not be
    compressed.
    """

    def __init__(self, file: str, encoding: str, part: _ByteRange = WHOLE):
        start, stop = part
        self._source: Any = open_decompressed(file)
        if start:
            self._source.seek(start)
        self._left = None if stop is None else stop - start
        is_utf8 = codecs.lookup(encoding).name == "utf-8"
        self._decoder = None if is_utf8 else codecs.getincrementaldecoder(encoding)()
        self._begun = start > 0

    def read(self, size: int) -> bytes:
        """Return some `size` bytes, none at the end.

        Raises:
            UnicodeDecodeError: they are not text in the encoding. UTF-8 is not checked.
            DamagedFile: they cannot be decompressed.
        """
        while True:
            data = text = self._source.read(size if self._left is None else min(size, self._left))
            if self._left is not None:
                self._left -= len(data)
            if self._decoder is not None:
                text = self._decoder.decode(data, final=not data).encode()
            if not self._begun and text:
                self._begun, text = True, text.removeprefix(codecs.BOM_UTF8)
            if text or not data:
                return text

    def __enter__(self) -> Utf8Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()


def read_start(stream: Utf8Stream | BinaryIO, size: int) -> bytes:
    """Return at least `size` bytes; fewer where the stream has no more."""
    data = b""
    while len(data) < size and (part := stream.read(size - len(data))):
        data += part
    return data


def find_undecodable(file: str, encoding: str) -> tuple[int, int] | None:
    """Return the line, from 1, and the value of the first byte that is not text in an encoding."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)(), True)
    line, data = 1, b"\n"
    with closing(open_decompressed(file)) as stream:
        while data:
            data = stream.read(_PIECE_BYTES)
            try:
                line += decoder.decode(data, final=not data).count("\n")
            except UnicodeDecodeError as error:
                held = "\r" * (decoder.getstate()[1] & 1)  # which may be the first half of a CRLF
                text = held + error.object[: error.start].decode(encoding, "replace")
                ends = text.replace("\r\n", "\n").replace("\r", "\n").count("\n")
                return line + ends, error.object[error.start]
    return None


class Record(NamedTuple):
    """A row: the number of its first line, from 1, and its cells."""

    line: int
    cells: list[str]


class BadRecord(ValueError):
    """A record that cannot be read; `line` is the number of its first line, from 1."""

    def __init__(self, line: int, reason: str):
        super().__init__(reason)
        self.line = line


class OpenQuote(BadRecord):
    """The text ends within a quoted cell."""


class CsvRecords:
    """Iterates over the records of lines; skips blank lines and comments.

    Attributes:
        position: characters of the text that have been read.
        start: characters before the record that was read last.
    """

    def __init__(
        self, lines: Iterable[str], delimiter: str, options: CsvOptions, *, may_be_cut: bool = False
    ):
        """Read lines, each with its end: LF, CRLF or CR.

        With `may_be_cut` they may end within a quoted cell; its record is read as far as it is.
        """
        self._may_be_cut = may_be_cut
        self.position = self.start = 0
        self._comment, self._quote = options.comment, options.quote
        self._line = self._first_line = 0
        self._inside = False
        self._rows = csv.reader(self._pull(lines), delimiter=delimiter, quotechar=options.quote)

    def _pull(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines that `csv.reader` asks for; within a record only a quoted cell does."""
        for text in lines:
            self._line += 1
            start, self.position = self.position, self.position + len(text)
            if not self._inside:
                if self._comment and text.startswith(self._comment):
                    continue
                self.start, self._first_line, self._inside = start, self._line, True
            yield text
        if self._inside and not self._may_be_cut:
            raise OpenQuote(
                self._first_line,
                f"a cell begins with {self._quote} that does not end before the end of the file. "
                "End it, or double a quote that belongs to a value.",
            )

    def __iter__(self) -> Iterator[Record]:
        """Yield each record; a BadRecord names the line of one that cannot be read."""
        while True:
            self._inside = False
            try:
                cells = next(self._rows)
            except StopIteration:
                return
            except csv.Error as error:
                raise BadRecord(self._first_line, f"cannot be read as CSV ({error}).") from None
            if cells:
                yield Record(self._first_line, cells)


def records_of_file(
    file: str, encoding: str, delimiter: str, options: CsvOptions
) -> Iterator[Record]:
    """Yield the records of a file; a UnicodeDecodeError says that it has another encoding."""
    with io.TextIOWrapper(open_decompressed(file), encoding, newline="") as text:
        lines = (line if i else line.removeprefix("\ufeff") for i, line in enumerate(text))
        yield from CsvRecords(lines, delimiter, options)


class _Chunk(NamedTuple):
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

    @property
    def lines(self) -> int:
        """The number of lines that are not empty: an end right after an end is an empty line."""
        return int(np.count_nonzero(np.diff(self.places, prepend=-1) > 1))


def chunks(stream: Utf8Stream, delimiter: str, options: CsvOptions, size: int) -> Iterator[_Chunk]:
    """Yield the records of a text, some `size` bytes at a time; a longer record makes a longer one.

    Raises:
        BadRecord: a quote does not end, or a record is too long. Its line is that in the chunk.
        UnicodeDecodeError: the text is none.
    """
    left, is_last = b"", False
    while not is_last:
        text = stream.read(max(size - len(left), len(left), 1))
        data, is_last = left + text, not text
        if data:
            end, *chunk = _cut(data, delimiter, options, is_last=is_last)
            if end:
                yield _Chunk(memoryview(data)[:end], *chunk)
            left = data[end:]
        if len(left) > _LONGEST_RECORD:
            raise BadRecord(1, f"a record is longer than {_LONGEST_RECORD >> 20} MB.")


def _cut(data: bytes, delimiter: str, options: CsvOptions, *, is_last: bool) -> tuple[Any, ...]:
    """Return the place behind the last whole record, and the count, or the rows, up to there."""
    ends = _ends(data, delimiter, options)
    if ends is None:
        return _exact_cut(data, delimiter, options, is_last=is_last)
    if is_last and ends.is_open:
        raise OpenQuote(1, f"a cell begins with {options.quote} that does not end.")
    # A CRLF may be cut in two: its LF is an empty line of the next chunk.
    end = len(data) if is_last else ends.end
    return end, ends.lines + int(ends.end < end)


def _exact_cut(data: bytes, delimiter: str, options: CsvOptions, *, is_last: bool) -> Any:
    if not is_last:  # a line or a character at the end may not be whole
        data = data[: max(data.rfind(b"\n"), data.rfind(b"\r")) + 1]
    text = data.decode()
    records = CsvRecords(io.StringIO(text, newline=""), delimiter, options)
    rows: list[list[str]] = []
    try:
        rows.extend(record.cells for record in records)
    except OpenQuote:
        if is_last:
            raise
        data = text[: records.start].encode()
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


def find_parts(file: str, delimiter: str, encoding: str, options: CsvOptions) -> list[_ByteRange]:
    """Cut a file into parts of whole records, which several workers read, and return them in order.

    A line end within quotes ends no record, so the file is read once from its beginning. It is one
    part if it is small, compressed, or in an encoding in which a byte of a character may look like
    a quote. From where only Python's `csv` module finds the ends of records, the rest is one part.
    """
    starts, name = [0], codecs.lookup(encoding).name
    with closing(open_decompressed(file)) as stream:
        marks_are_bytes = name == "utf-8" or name.startswith(_ONE_BYTE_A_CHARACTER)
        if not marks_are_bytes or not stream.seekable():  # compressed files are not
            return [WHOLE]
        size = stream.seek(0, 2)
        stream.seek(0)
        least = max(_PART_BYTES, size // _MOST_PARTS)
        left = stream.read(len(codecs.BOM_UTF8))
        # A quote behind the mark opens a cell.
        left, place = (b"", len(left)) if left == codecs.BOM_UTF8 else (left, 0)
        has_header = False
        while piece := stream.read(_PIECE_BYTES):
            data = left + piece
            ends = _ends(data, delimiter, options)
            if ends is None or len(data) - ends.end > _LONGEST_RECORD:
                break
            place, left = place + ends.end, data[ends.end :]
            has_header = has_header or ends.lines > 0  # which the first part must have
            if has_header and place - starts[-1] >= least and place < size:
                starts.append(place)
    return list(zip(starts, [*starts[1:], None], strict=True))


class ChunkParser:
    """Parses chunks of one file into columns of texts."""

    def __init__(
        self,
        width: int,
        delimiter: str,
        options: CsvOptions,
        columns: Sequence[int],
        unreadable: list[str] | None,
    ):
        """Prepare Arrow's options once: this is slow for thousands of columns.

        Args:
            width: number of cells of a record.
            delimiter: between them.
            options: how the file is written.
            columns: places of the columns to return.
            unreadable: gets records of another number of cells; None: they are errors.
        """
        self._width, self._delimiter, self._options = width, delimiter, options
        self._columns, self._unreadable = columns, unreadable
        self._skipped: list[str] = []
        names = [f"f{place}" for place in range(width)]
        included = [names[place] for place in columns]
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

    def columns(self, chunk: _Chunk) -> list[pa.Array]:
        """Return the columns of a chunk; none of a chunk without records.

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
                pa.BufferReader(pa.py_buffer(chunk.data)), self._read, self._parse, self._convert
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
        others = [self._delimiter.join(row) for row in rows if len(row) != self._width]
        if others:
            if self._unreadable is None:
                raise BadRecord(1, f"a row has not {self._width} cells")
            self._unreadable += others
        columns = list(zip(*(row for row in rows if len(row) == self._width), strict=True))
        return [pa.array(columns[place], pa.string()) for place in self._columns if columns]
