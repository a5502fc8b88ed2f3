"""CSV files as Arrow blocks of texts: header, cells, and the line of what is wrong.

A block has a column of texts for each named column; a missing value is null. What the texts mean
is decided when all of them are known (`csv_types`).
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from components.arrow_example_gen.csv_first_line import looks_like_data, shortened
from components.arrow_example_gen.csv_options import CsvOptions
from components.arrow_example_gen.read_ahead import ReadAhead

BLOCK_BYTES = 2**20
_LONGEST_RECORD = 2**28
_LOOKED_AT = 2**16
_DELIMITERS = ",;\t|"
_BYTE_ORDER_MARKS = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)

_LOCAL: Mapping[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}
_DAMAGED = (gzip.BadGzipFile, EOFError, zlib.error)

csv.field_size_limit(_LONGEST_RECORD)


@dataclass(frozen=True)
class CsvHeader:
    """The first line of a file, and how the file is written.

    Attributes:
        names: the columns; one without a name is "".
        delimiter: between cells.
        encoding: of the file.
        kept: places of the columns that are read.
        dropped: why the others are not, for the log; empty where there are none.
    """

    names: tuple[str, ...]
    delimiter: str
    encoding: str
    kept: tuple[int, ...]
    dropped: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that are read."""
        return tuple(self.names[place] for place in self.kept)


class NoText(ValueError):
    """Bytes that are no text of the encoding."""


class Found(NamedTuple):
    """Where something is in a file."""

    line: int
    cells: Sequence[str]


def read_header(file: str, options: CsvOptions) -> CsvHeader:
    """Reads the first line of a file, and finds out how it is written.

    Args:
        file: a path on any file system that Beam knows; decompressed by its name.
        options: what the user says of it.

    Raises:
        ValueError: it is empty or no text, or the first line names a column twice or not at all, or
            looks like data where the options do not say what it is.
    """
    try:
        encoding = options.encoding or _encoding(file)
        with _utf8(file, encoding, options) as stream:
            head = stream.read(_LOOKED_AT)
    except _DAMAGED as error:
        raise ValueError(f"{file} is no file of this compression ({error}).") from None
    except UnicodeDecodeError as error:
        raise NoText(_no_text(file, encoding, options, error, 1)) from None
    text = _decoded(head, file, options)
    if not text.strip():
        raise ValueError(f"{file}: has no line with the columns' names. Write them in its first.")
    delimiter = options.delimiter or _delimiter(text, options, whole=len(head) < _LOOKED_AT)
    rows = _records(text, delimiter, options)
    first = next((row for row in rows if row), [])
    if options.header is False:
        numbered = tuple(f"column_{number}" for number in range(1, len(first) + 1))
        return CsvHeader(numbered, delimiter, encoding, tuple(range(len(first))))
    if options.header is None and looks_like_data(first, rows):
        raise ValueError(
            f"{file}: the first line looks like data: {shortened(first, delimiter)!r}. "
            "If it is a row, set data.csv.header: false (init: --no-header), which names the "
            "columns column_1, column_2, ...; if it names the columns, set data.csv.header: true "
            "(init: --header)."
        )
    names = tuple(name.strip() for name in first)
    dropped = [i for i in (0, len(names) - 1) if not names[i] and len(names) > 1]
    kept = tuple(i for i in range(len(names)) if i not in dropped)
    _check_names([names[i] for i in kept], file)
    places = " and ".join({0: "first"}.get(i, "last") for i in dict.fromkeys(dropped))
    why = f"{file}: the {places} column has no name and is left out" if dropped else ""
    return CsvHeader(names, delimiter, encoding, kept, why)


def same_columns(header: CsvHeader, first: CsvHeader, file: str, first_file: str) -> None:
    """Refuses a file whose columns are not those of the first file, in any order.

    Raises:
        ValueError: names the columns.
    """
    others = sorted(set(header.columns) ^ set(first.columns))
    if others:
        raise ValueError(
            f"{file}: its header differs from that of {first_file}: {', '.join(others)}. "
            "All CSV files of one data set need the same columns."
        )


def blocks(
    file: str,
    header: CsvHeader,
    options: CsvOptions,
    columns: Sequence[str] | None = None,
    *,
    unreadable: list[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a file as texts, null where there is no value.

    Args:
        file: its path.
        header: what `read_header` found.
        options: what the user says of the file.
        columns: the columns to read, in this order; None: all.
        unreadable: gets each row with more or fewer cells than the header, which is passed over;
            None: such a row is an error.

    Yields:
        Record batches of some 1 MB each.

    Raises:
        ValueError: a row has more or fewer cells than the header, a quote does not end, or bytes
            are no text of the encoding: names file and line.
    """
    wanted = list(header.columns if columns is None else columns)
    places = {name: place for place, name in enumerate(header.names) if place in header.kept}
    missing = pa.array(options.missing, pa.string())
    size = BLOCK_BYTES
    done = 0
    while True:
        try:
            for batch in _batches(file, header, options, size, done, unreadable):
                done += batch.num_rows
                cells = [batch[places[name]] for name in wanted]
                yield pa.RecordBatch.from_arrays([_present(c, missing) for c in cells], wanted)
            return
        except _DAMAGED as error:
            raise ValueError(f"{file} is damaged: it cannot be decompressed ({error}).") from None
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            wrong = _what_is_wrong(file, header, options)
            if wrong is not None:
                raise wrong from None
            if "straddl" not in str(error) or size >= _LONGEST_RECORD:
                raise ValueError(f"{file}: cannot be read as CSV ({error})") from None
            size *= 16  # a cell that is longer than a block


def find(
    file: str,
    header: CsvHeader,
    options: CsvOptions,
    wanted: Callable[[Mapping[str, str]], bool],
) -> Found | None:
    """The first row, by name -> cell, that `wanted` takes; None where it takes none."""
    with _utf8(file, header.encoding, options) as stream:
        for line, cells in _numbered(stream, header.delimiter, options):
            if wanted({header.names[place]: cells[place] for place in header.kept}):
                return Found(line, cells)
    return None


def _present(cells: pa.Array, missing: pa.Array) -> pa.Array:
    known = pc.is_in(pc.ascii_trim_whitespace(cells), value_set=missing)
    # if_else with a scalar null reads beyond the end of a slice in Arrow 18.
    return pc.replace_with_mask(cells, known, pa.scalar(None, pa.string()))


def _batches(
    file: str,
    header: CsvHeader,
    options: CsvOptions,
    size: int,
    skip: int,
    unreadable: list[str] | None,
) -> Iterator[pa.RecordBatch]:
    """All columns, from row `skip` on."""

    def pass_over(row: pa_csv.InvalidRow) -> str:
        if unreadable is not None and not ahead.stopped:
            unreadable.append(row.text)
        return "skip"

    # The header is read as a row: its names may be there twice, empty or of several lines.
    with _utf8(file, header.encoding, options) as stream:
        ahead = ReadAhead(stream)
        reader = ahead.open_csv(
            read_options=pa_csv.ReadOptions(
                autogenerate_column_names=True, use_threads=False, block_size=size
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter=header.delimiter,
                quote_char=options.quote,
                newlines_in_values=True,
                invalid_row_handler=None if unreadable is None else pass_over,
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types={f"f{i}": pa.string() for i in range(len(header.names))},
                strings_can_be_null=False,
            ),
        )
        left = skip + (options.header is not False)
        try:
            for batch in reader:
                passed = min(left, batch.num_rows)
                left -= passed
                if passed < batch.num_rows:
                    yield batch.slice(passed)
        except BaseException:
            ahead.give_up(reader)
            raise
        if stream.quotes % 2:
            raise pa.ArrowInvalid("odd number of quotes")


def _what_is_wrong(file: str, header: CsvHeader, options: CsvOptions) -> ValueError | None:
    """The first row that cannot be read, in words."""
    number = len(header.names)
    with _utf8(file, header.encoding, options) as stream:
        records = _numbered(stream, header.delimiter, options)
        try:
            for line, cells in records:
                if len(cells) != number:
                    return ValueError(
                        f"{file}, line {line}: {len(cells)} cells under a "
                        f"{'header' if options.header is not False else 'first line'} of {number} "
                        f"columns. Correct it, or quote cells with {header.delimiter!r} in them."
                    )
        except _OpenQuote as error:
            return ValueError(
                f"{file}, line {error.line}: a cell begins with {options.quote} that does not end "
                "before the end of the file. End it, or double a quote that belongs to a value."
            )
        except UnicodeDecodeError:
            return _first_no_text(file, header, options)
    return None


def _first_no_text(file: str, header: CsvHeader, options: CsvOptions) -> NoText | None:
    line = 1
    try:
        with _utf8(file, header.encoding, options) as stream:
            for text in stream:
                text.decode()
                line += 1
    except UnicodeDecodeError as error:
        return NoText(_no_text(file, header.encoding, options, error, line))
    return None


class _OpenQuote(Exception):
    def __init__(self, line: int):
        super().__init__(line)
        self.line = line


def _numbered(
    stream: BinaryIO, delimiter: str, options: CsvOptions
) -> Iterator[tuple[int, list[str]]]:
    """The rows below the header, if there is one, each with the number of its first line."""
    text = io.TextIOWrapper(stream, "utf-8-sig", newline="")
    reader = csv.reader(text, delimiter=delimiter, quotechar=options.quote, strict=True)
    start, header = 1, options.header is not False
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "end of data" in str(error):
                raise _OpenQuote(start) from None
            row = [str(error)]  # text behind a quote that ends: Arrow takes it, and tells otherwise
        if row and not header:
            yield start, row
        header = header and not row
        start = reader.line_num + 1


def _decoded(head: bytes, file: str, options: CsvOptions) -> str:
    try:
        return head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if (
            len(head) == _LOOKED_AT and error.start >= len(head) - 3
        ):  # a character at the end of what was read
            return head[: error.start].decode("utf-8-sig")
        line = head[: error.start].count(b"\n") + 1
        raise NoText(_no_text(file, "utf-8", options, error, line)) from None


def _no_text(
    file: str, encoding: str, options: CsvOptions, error: UnicodeDecodeError, line: int
) -> str:
    wrong = error.object[error.start : error.start + 1].hex()
    fix = (
        "Name the file's encoding in data.csv.encoding"
        if options.encoding is None
        else f"data.csv.encoding={options.encoding} is not the file's: name another"
    )
    return (
        f"{file}, line {line}: byte 0x{wrong} is no text in {encoding}. {fix}; files of Excel and "
        "Windows in western Europe and America are cp1252, and others latin-1."
    )


def _encoding(file: str) -> str:
    with _open(file) as stream:
        start = stream.read(3)
    return next((name for mark, name in _BYTE_ORDER_MARKS if start.startswith(mark)), "utf-8")


def _delimiter(text: str, options: CsvOptions, *, whole: bool) -> str:
    """The one by which most rows have as many cells as the first, and by which these are most."""

    def fit(delimiter: str) -> tuple[bool, float, int]:
        rows = [len(row) for row in _records(text, delimiter, options) if row]
        if not whole and len(rows) > 1:
            rows.pop()  # its end was not read
        alike = Counter(rows)[rows[0]] / len(rows) if rows else 0.0
        return rows[0] > 1 if rows else False, alike, rows[0] if rows else 0

    return max(_DELIMITERS, key=fit)


def _records(text: str, delimiter: str, options: CsvOptions) -> Iterator[list[str]]:
    lines = io.StringIO(text, newline="")
    return csv.reader(lines, delimiter=delimiter, quotechar=options.quote)


def _check_names(names: Sequence[str], file: str) -> None:
    repeated = sorted(name for name, times in Counter(names).items() if times > 1)
    if repeated or not all(names):
        raise ValueError(
            f"{file}: the first line must name every column once; "
            + (f"repeated: {', '.join(repeated)}." if repeated else "one name is empty.")
            + " If it is a row of data, set data.csv.header: false (init: --no-header)."
        )


def _open(file: str) -> BinaryIO:
    """A file as it is when decompressed, by the end of its name."""
    if "://" not in file:
        opened = _LOCAL.get(os.path.splitext(file)[1], open)
        return opened(file, "rb")
    from apache_beam.io.filesystems import FileSystems

    return io.BufferedReader(_Stream(FileSystems.open(file)), _LOOKED_AT)


class _Stream(io.RawIOBase):
    """What Beam opens: its compressed files can be read, and no more."""

    def __init__(self, source: BinaryIO):
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, into: memoryview) -> int:  # type: ignore[override]
        found = self._source.read(len(into))
        into[: len(found)] = found
        return len(found)

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()


class _Utf8(io.RawIOBase):
    """A file in UTF-8 with empty lines for comments; counts quotes."""

    def __init__(self, source: BinaryIO, encoding: str, options: CsvOptions):
        self._source, self._encoding = source, encoding
        self._comment = (options.comment or "").encode()
        self._quote = options.quote.encode()
        self._text = None
        if encoding.lower().replace("_", "-") not in ("utf-8", "utf8"):
            self._text = io.TextIOWrapper(source, encoding, newline="")
        self._left = b""
        self.quotes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, into: memoryview) -> int:  # type: ignore[override]
        if not self._left:
            self._left = self._lines(len(into)) if self._comment else self._bytes(len(into))
        found, self._left = self._left[: len(into)], self._left[len(into) :]
        into[: len(found)] = found
        if not self._comment:
            self.quotes += found.count(self._quote)
        return len(found)

    def _bytes(self, size: int) -> bytes:
        if self._text is None:
            return self._source.read(size)
        return self._text.read(max(size // 4, 1)).encode()

    def _lines(self, size: int) -> bytes:
        found: list[bytes] = []
        length = 0
        while length < size:
            read = self._source.readline() if self._text is None else self._text.readline()
            line = read if isinstance(read, bytes) else read.encode()
            if not line:
                break
            if line.startswith(self._comment) and self.quotes % 2 == 0:
                line = b"\n"
            self.quotes += line.count(self._quote)
            found.append(line)
            length += len(line)
        return b"".join(found)

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()


class _Buffered(io.BufferedReader):
    """A buffered `_Utf8`."""

    def __init__(self, raw: _Utf8):
        super().__init__(raw, _LOOKED_AT)
        self._utf8 = raw

    @property
    def quotes(self) -> int:
        """Quotes read so far."""
        return self._utf8.quotes


def _utf8(file: str, encoding: str, options: CsvOptions) -> _Buffered:
    return _Buffered(_Utf8(_open(file), encoding, options))
