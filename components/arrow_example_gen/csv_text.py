"""The text of a CSV file: as UTF-8 or lines, and its records one by one.

Python's `csv` module reads records slowly, and decides where Arrow's reader differs from it.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain
from typing import Any, BinaryIO, NamedTuple

from components.arrow_example_gen.csv_options import CsvOptions
from components.arrow_example_gen.decompress import open_decompressed

LONGEST_RECORD = 2**28  # bytes
_BYTES = 2**16
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins as UTF-16's does
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

csv.field_size_limit(LONGEST_RECORD)


def encoding_of(file: str) -> str:
    """Return the encoding by a file's first bytes: a byte order mark, or NULs of UTF-16."""
    with open_decompressed(file) as stream:
        start = stream.read(4)
    nuls = [code == 0 for code in start]  # two ASCII characters have one each
    unmarked = {(False, True) * 2: "utf-16-le", (True, False) * 2: "utf-16-be"}
    marked = next((name for mark, name in _MARKS if start.startswith(mark)), None)
    return marked or unmarked.get(tuple(nuls), "utf-8")


class ByteRange(NamedTuple):
    """Bytes of a file, up to its end without a `stop`."""

    start: int = 0
    stop: int | None = None


WHOLE = ByteRange()


class Utf8Stream:
    """Reads a file as UTF-8, whatever its encoding.

    Of a `part`, which is from the start of a character to the end of one, the file must not be
    compressed.
    """

    def __init__(self, file: str, encoding: str, part: ByteRange = WHOLE):
        self._source: Any = open_decompressed(file)
        if part.start:
            self._source.seek(part.start)
        self._left = None if part.stop is None else part.stop - part.start
        is_utf8 = codecs.lookup(encoding).name == "utf-8"
        self._decoder = None if is_utf8 else codecs.getincrementaldecoder(encoding)()
        self._begun = part.start > 0

    def read(self, size: int) -> bytes:
        """Return some `size` bytes, none at the end.

        Raises:
            UnicodeDecodeError: they are not text in the encoding. UTF-8 is not checked.
            DamagedFile: they cannot be decompressed.
        """
        while True:
            data = found = self._source.read(size if self._left is None else min(size, self._left))
            if self._left is not None:
                self._left -= len(data)
            if self._decoder is not None:
                found = self._decoder.decode(data, final=not data).encode()
            if not self._begun and found:
                self._begun, found = True, found.removeprefix(codecs.BOM_UTF8)
            if found or not data:
                return found

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


class _Undecodable(NamedTuple):
    """A byte that is not valid in an encoding, and its line, from 1."""

    line: int
    byte: int


def find_undecodable(file: str, encoding: str) -> _Undecodable | None:
    """Find the first byte of a file that is not text in an encoding."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)(), True)
    with closing(open_decompressed(file)) as stream:
        return _undecodable(decoder, chain(iter(lambda: stream.read(_BYTES), b""), [b""]), 1)


def _undecodable(decoder: Any, pieces: Iterable[bytes], line: int) -> _Undecodable | None:
    for piece in pieces:
        state = decoder.getstate()
        try:
            line += decoder.decode(piece, final=not piece).count("\n")
        except UnicodeDecodeError as error:
            if len(piece) <= 1:
                return _Undecodable(line, error.object[error.start])
            decoder.setstate(state)  # only the decoder knows how much of the piece is text
            return _undecodable(decoder, [*(bytes([byte]) for byte in piece), b""], line)
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
