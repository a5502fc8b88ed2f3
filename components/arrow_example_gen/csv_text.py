"""The text of a CSV file: decompressed, in UTF-8 or as lines, without a byte order mark."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from contextlib import closing
from typing import Any, BinaryIO, NamedTuple

from components.arrow_example_gen.decompress import open_decompressed

_BYTES = 2**16
_UTF8_MARK = codecs.BOM_UTF8
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins as UTF-16's does
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Undecodable(NamedTuple):
    """A byte that is not valid in an encoding, and its line, from 1."""

    line: int
    byte: int


def encoding_of(file: str) -> str:
    """Return the encoding by a file's first bytes: a byte order mark, or NULs of UTF-16."""
    with open_decompressed(file) as stream:
        start = stream.read(4)
    marked = next((name for mark, name in _MARKS if start.startswith(mark)), None)
    if marked is not None:
        return marked
    nuls = [code == 0 for code in start]  # two ASCII characters have one each
    if nuls == [False, True, False, True]:
        return "utf-16-le"
    return "utf-16-be" if nuls == [True, False, True, False] else "utf-8"


class ByteRange(NamedTuple):
    """Bytes of a file, up to its end without a `stop`."""

    start: int = 0
    stop: int | None = None


WHOLE = ByteRange()


class _Range(io.RawIOBase):
    """Some bytes of a source, which it closes."""

    def __init__(self, source: BinaryIO, part: ByteRange):
        self._source = source
        self._left = None if part.stop is None else part.stop - part.start
        source.seek(part.start)

    def readable(self) -> bool:
        return True

    def readinto(self, into: memoryview) -> int:  # type: ignore[override]
        found = self._source.read(len(into) if self._left is None else min(len(into), self._left))
        if self._left is not None:
            self._left -= len(found)
        into[: len(found)] = found
        return len(found)

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()


class Utf8Stream:
    """Reads a file, or some bytes of it, as UTF-8, whatever its encoding."""

    def __init__(self, file: str, encoding: str, part: ByteRange = WHOLE):
        """Open a file.

        Args:
            file: a path on any file system that Beam knows.
            encoding: of the file.
            part: from the start of a character to the end of one, of a file that is not compressed.
        """
        self._source: Any = open_decompressed(file)
        if part != WHOLE:
            self._source = io.BufferedReader(_Range(self._source, part), _BYTES)
        self._is_utf8 = codecs.lookup(encoding).name == "utf-8"
        if not self._is_utf8:
            self._source = io.TextIOWrapper(self._source, encoding, newline="")
        self._begun = part.start > 0

    def read(self, size: int) -> bytes:
        """Return `size` bytes or characters, fewer only before the end, none at the end.

        Raises:
            UnicodeDecodeError: they are not text in the encoding. UTF-8 is not checked.
            DamagedFile: they cannot be decompressed.
        """
        found = self._source.read(size)
        found = found if self._is_utf8 else found.encode()
        if not self._begun:
            self._begun = True
            found = found.removeprefix(_UTF8_MARK)
        return found

    def __enter__(self) -> Utf8Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()


def lines(file: str, encoding: str) -> Iterator[str]:
    """Yield the lines of a file, each with its end.

    Raises:
        UnicodeDecodeError: bytes are not text in the encoding.
    """
    source = open_decompressed(file)
    with io.TextIOWrapper(source, encoding, newline="") as text:
        for number, line in enumerate(text):
            yield line.removeprefix("\ufeff") if number == 0 else line


def find_undecodable(file: str, encoding: str) -> Undecodable | None:
    """Find the first byte of a file that is not text in an encoding."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)(), True)
    line = 1
    with closing(open_decompressed(file)) as stream:
        while True:
            data, state = stream.read(_BYTES), decoder.getstate()
            try:
                line += decoder.decode(data, final=not data).count("\n")
            except UnicodeDecodeError:
                decoder.setstate(state)
                return _first_undecodable(decoder, data, line)
            if not data:
                return None


def _first_undecodable(decoder: Any, data: bytes, line: int) -> Undecodable:
    """Decode byte by byte: only the decoder knows how much of `data` is text."""
    try:
        for place in range(len(data)):
            line += decoder.decode(data[place : place + 1]).count("\n")
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        return Undecodable(line, error.object[error.start])
    raise AssertionError("text in parts that is none as a whole")


def read_start(stream: Utf8Stream | BinaryIO, size: int) -> bytes:
    """Return at least `size` bytes; fewer where the stream has no more."""
    parts: list[bytes] = []
    length = 0
    while length < size and (part := stream.read(size - length)):
        parts.append(part)
        length += len(part)
    return b"".join(parts)
