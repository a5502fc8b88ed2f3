"""Cuts a large CSV file into parts of whole records, which several workers read.

A line end within quotes ends no record, so the file is read once from its beginning to see where
quotes are open.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

from components.arrow_example_gen.csv_chunks import end_of_last_record
from components.arrow_example_gen.csv_options import CsvOptions
from components.arrow_example_gen.csv_records import LONGEST_RECORD
from components.arrow_example_gen.csv_text import ByteRange
from components.arrow_example_gen.decompress import open_decompressed

PART_BYTES = 2**23
_MOST_PARTS = 1_000  # of a file: the counts of each wait in memory until the types are known
_PIECE_BYTES = 2**20
_HEADER_BYTES = 2**16  # in which a record must begin, so that the first part has the header
_ONE_BYTE_A_CHARACTER = ("iso8859-", "cp125")


class Part(NamedTuple):
    """What a worker reads of a file."""

    file: str
    bytes: ByteRange


def find_parts(file: str, delimiter: str, encoding: str, options: CsvOptions) -> list[Part]:
    """Return the parts of a file in their order.

    A file is one part if it is small, compressed, or in an encoding in which a byte of a character
    may look like a quote. From where only Python's `csv` module finds the ends of records, the rest
    of a file is one part.

    Args:
        file: a path on any file system that Beam knows.
        delimiter: between cells.
        encoding: of the file.
        options: quote and comment.
    """
    places = [0]
    with closing(open_decompressed(file)) as stream:
        if _marks_are_bytes(encoding) and stream.seekable():  # compressed ones are not
            size = stream.seek(0, 2)
            stream.seek(0)
            for place in _record_ends(stream, delimiter, options):
                if place - places[-1] >= max(PART_BYTES, size // _MOST_PARTS) and place < size:
                    places.append(place)
    stops = [*places[1:], None]
    return [Part(file, ByteRange(*each)) for each in zip(places, stops, strict=True)]


def _marks_are_bytes(encoding: str) -> bool:
    """Return whether line ends and quotes are the bytes of ASCII, and no part of a character."""
    name = codecs.lookup(encoding).name
    return name == "utf-8" or name.startswith(_ONE_BYTE_A_CHARACTER)


def _record_ends(stream: Any, delimiter: str, options: CsvOptions) -> Iterator[int]:
    """Yield places behind whole records, with the header before the first of them."""
    left = stream.read(len(codecs.BOM_UTF8))
    place = 0
    if left == codecs.BOM_UTF8:  # a quote behind it opens a cell
        left, place = b"", len(left)
    has_header = False
    while found := stream.read(_PIECE_BYTES):
        data = left + found
        end = end_of_last_record(data, delimiter, options)
        if end is None or len(data) - end > LONGEST_RECORD:
            return
        has_header = has_header or _has_record(data[: min(end, _HEADER_BYTES)], options)
        place, left = place + end, data[end:]
        if end and has_header:
            yield place


def _has_record(data: bytes, options: CsvOptions) -> bool:
    comment = options.comment.encode() if options.comment else None
    return any(line and not (comment and line.startswith(comment)) for line in data.splitlines())
