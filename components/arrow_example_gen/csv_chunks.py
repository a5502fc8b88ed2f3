"""Cuts a CSV text into chunks of whole records, and counts these without parsing them.

Arrow's own reader cuts blocks where they are full: it takes the LF of a CRLF at the edge of two
blocks for an empty line, within quotes too (apache/arrow cpp/src/arrow/csv/reader.cc,
`CSVBufferIterator`), and reads ahead on a thread that must not outlive Python.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from components.arrow_example_gen.byte_masks import (
    count_bits,
    end_of_last,
    find_bytes,
    prefix_xor,
    shift_by_one,
)
from components.arrow_example_gen.csv_options import CsvOptions
from components.arrow_example_gen.csv_records import (
    LONGEST_RECORD,
    BadRecord,
    CsvRecords,
    OpenQuote,
)
from components.arrow_example_gen.csv_text import Utf8Stream


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


class _Cut(NamedTuple):
    end: int
    count: int
    rows: list[list[str]] | None = None


def chunks(stream: Utf8Stream, delimiter: str, options: CsvOptions, size: int) -> Iterator[Chunk]:
    """Yield the records of a text, some MB at a time.

    Args:
        stream: from its beginning.
        delimiter: between cells.
        options: quote and comment.
        size: bytes of a chunk; a record that is longer makes it longer.

    Raises:
        BadRecord: a quote does not end, or a record is too long. Its line is that in the chunk.
        UnicodeDecodeError: the text is none.
    """
    left = b""
    while True:
        found = stream.read(max(size - len(left), len(left), 1))
        data, is_last = left + found, not found
        if data:
            cut = _regular_cut(data, delimiter, options, is_last=is_last)
            if cut is None:
                cut = _exact_cut(data, delimiter, options, is_last=is_last)
            if cut.end:
                yield Chunk(memoryview(data)[: cut.end], cut.count, cut.rows)
            left = data[cut.end :]
        if is_last:
            return
        if len(left) > LONGEST_RECORD:
            raise BadRecord(1, f"a record is longer than {LONGEST_RECORD >> 20} MB.")


def exact_rows(data: memoryview, delimiter: str, options: CsvOptions) -> list[list[str]]:
    """Return the cells of whole records as Python's `csv` module reads them."""
    text = io.StringIO(str(data, "utf-8"), newline="")
    return [record.cells for record in CsvRecords(text, delimiter, options)]


def _exact_cut(data: bytes, delimiter: str, options: CsvOptions, *, is_last: bool) -> _Cut:
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
        return _Cut(len(text[: records.start].encode()), len(rows), rows)
    return _Cut(len(data), len(rows), rows)


def _regular_cut(data: bytes, delimiter: str, options: CsvOptions, *, is_last: bool) -> _Cut | None:
    """Cut behind the last whole record; None if the masks alone cannot decide where that is."""
    if b"\0" in data or (options.comment and _has_line_with(options.comment.encode(), data)):
        return None
    codes = np.frombuffer(data, np.uint8)
    line_ends = ends = find_bytes(codes, b"\n\r" if b"\r" in data else b"\n")
    quote = options.quote.encode()
    if quote in data:
        quotes = find_bytes(codes, quote)
        quoted = prefix_xor(quotes)
        may_open = line_ends | find_bytes(codes, delimiter.encode()) | (quotes & ~quoted)
        # A quote that opens no cell, within one without quotes, is a character as any other.
        if (quotes & quoted & ~shift_by_one(may_open)).any():
            return None
        if is_last and quoted[-1] >> np.uint64(63):
            raise OpenQuote(1, f"a cell begins with {options.quote} that does not end.")
        ends = line_ends & ~quoted
    # A CRLF may be cut in two: its LF is an empty line of the next chunk.
    end = len(data) if is_last else end_of_last(ends)
    # An end right after an end, or at the start, is an empty line.
    count = count_bits(ends & ~shift_by_one(line_ends))
    return _Cut(end, count + int(end_of_last(ends) < end))


def end_of_last_record(data: bytes, delimiter: str, options: CsvOptions) -> int | None:
    """Return the place behind the last whole record of a text; 0 without one.

    Args:
        data: from the start of a record.
        delimiter: between cells.
        options: quote and comment.

    Returns:
        None if only Python's `csv` module can decide where that is.
    """
    if options.quote.encode() not in data:
        return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
    cut = _regular_cut(data, delimiter, options, is_last=False)
    return None if cut is None else cut.end


def _has_line_with(start: bytes, data: bytes) -> bool:
    return data.startswith(start) or b"\n" + start in data or b"\r" + start in data
