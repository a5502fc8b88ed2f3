"""CSV files as Arrow blocks of texts: header, cells, and the line of what is wrong.

A block has a column of texts for each named column; a missing value is null. What the texts mean
is decided when all of them are known (`csv_types`).
"""

from __future__ import annotations

import codecs
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from components.arrow_example_gen.csv_chunks import chunks
from components.arrow_example_gen.csv_first_line import looks_like_data, shorten_line
from components.arrow_example_gen.csv_options import CsvOptions
from components.arrow_example_gen.csv_parser import ChunkParser
from components.arrow_example_gen.csv_records import BadRecord, CsvRecords, OpenQuote, Record
from components.arrow_example_gen.csv_text import (
    WHOLE,
    ByteRange,
    Utf8Stream,
    encoding_of,
    find_undecodable,
    lines,
    read_start,
)
from components.arrow_example_gen.decompress import open_decompressed

BLOCK_BYTES = 2**20
_BYTES_A_COLUMN = 2**10  # a wide table has larger blocks: each has a fixed cost per column
_LOOKED_AT = 2**16
_LOOKED_AT_FOR_DELIMITER = 2**20  # of a longer header
_LONGEST_HEADER = 2**24
_DELIMITERS = ",;\t|"
_IN_VALUES = "._-+'()[]\"\r\n\0"  # signs that are part of names and values
_ALIGNED = re.compile(r"\S {2,}\S")
_CONTROLS = bytes({*range(0x20)} - {*b"\0\t\n\v\f\r\x1b"})
_MANY_CONTROLS = 4  # different ones; a delimiter may be one of them
_NO_TEXT = (
    (b"\xd0\xcf\x11\xe0", "an Office file, as Excel wrote them", "Save it as CSV"),
    (b"PAR1", "a Parquet file", "Set its format: data.source, or --source, parquet"),
    (b"ARROW1", "an Arrow file", "Set its format: data.source, or --source, arrow"),
    (b"<!doctype html", "a web page", "Download the data, not the page that links to it"),
    (b"<html", "a web page", "Download the data, not the page that links to it"),
    (b'{"', "JSON", "Write its rows as CSV or Parquet"),
    (b'[{"', "JSON", "Write its rows as CSV or Parquet"),
)


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


class InvalidEncoding(ValueError):
    """The file has bytes that are not valid in its encoding."""


def read_header(file: str, options: CsvOptions) -> CsvHeader:
    """Read the first line of a file, and detect how it is written.

    Args:
        file: a path on any file system that Beam knows; compressed or not.
        options: what the user says of it.

    Raises:
        ValueError: it is empty or no text, or the first line names a column twice or not at all, or
            looks like data where the options do not say what it is.
    """
    encoding = options.encoding or encoding_of(file)
    _check_is_text(file, encoding)
    try:
        delimiter, first, some = _first_records(file, encoding, options)
    except UnicodeDecodeError:
        raise _encoding_error(file, encoding, options) from None
    below = list(some)
    if options.header is False:
        numbered = tuple(f"column_{number}" for number in range(1, len(first) + 1))
        return CsvHeader(numbered, delimiter, encoding, tuple(range(len(first))))
    if options.header is None and looks_like_data(first, below):
        raise ValueError(
            f"{file}: the first line looks like data: {shorten_line(first, delimiter)!r}. "
            "If it is a row, set data.csv.header: false (init: --no-header), which names the "
            "columns column_1, column_2, ...; if it names the columns, set data.csv.header: true "
            "(init: --header)."
        )
    names = tuple(name.strip() for name in first)
    if _ALIGNED.search(names[0]) if len(names) == 1 else _are_repeated([first, *below]):
        raise ValueError(
            f"{file} has several signs between two columns: {shorten_line(first, delimiter)!r}. "
            "Write one sign between them, such as a comma."
        )
    dropped = [i for i in (0, len(names) - 1) if not names[i] and any(names)]
    kept = tuple(i for i in range(len(names)) if i not in dropped)
    _check_names([names[i] for i in kept], file)
    places = " and ".join({0: "first"}.get(i, "last") for i in dict.fromkeys(dropped))
    why = f"{file}: the {places} column has no name and is left out" if dropped else ""
    return CsvHeader(names, delimiter, encoding, kept, why)


def _check_is_text(file: str, encoding: str) -> None:
    """Refuse another format, which an encoding such as latin-1 would decode to something.

    Raises:
        ValueError: names the format, if it is known.
    """
    with open_decompressed(file) as stream:
        head = read_start(stream, _LOOKED_AT)
    for start, format_, fix in _NO_TEXT:
        if head[: len(start)].lower() == start.lower():
            raise ValueError(f"{file} is {format_}, not CSV. {fix}.")
    found = {byte for byte in head if byte in _CONTROLS}
    is_utf16 = encoding.startswith(("utf-16", "utf-32")) or 4 * head.count(0) > len(head)
    if len(found) >= _MANY_CONTROLS and not is_utf16:
        raise ValueError(
            f"{file} is not CSV: its first bytes are not text (0x{min(found):02x}, ...). Save the "
            "table as CSV, or set its format: data.source, or --source."
        )


def same_columns(header: CsvHeader, first: CsvHeader, file: str, first_file: str) -> None:
    """Refuse a file whose columns are not those of the first file, in any order.

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
    part: ByteRange = WHOLE,
    unreadable: list[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, or of a part of it, as texts, null where there is no value.

    Args:
        file: its path.
        header: what `read_header` found.
        options: what the user says of the file.
        columns: the columns to read, in this order; None: all.
        part: whole records; see `csv_parts.find_parts`.
        unreadable: gets each row with more or fewer cells than the header, which is skipped;
            None: such a row is an error.

    Yields:
        Record batches of some 1 MB each.

    Raises:
        ValueError: a row has more or fewer cells than the header, a quote does not end, or bytes
            are not text in the encoding: names file and line.
    """
    wanted = list(header.columns if columns is None else columns)
    places = {name: place for place, name in enumerate(header.names) if place in header.kept}
    missing = [options.missing_words(name) for name in wanted]
    parser = ChunkParser(
        len(header.names), header.delimiter, options, [places[name] for name in wanted], unreadable
    )
    size = max(BLOCK_BYTES, _BYTES_A_COLUMN * len(header.names))
    # The header is a record as others: its names may be there twice, or empty.
    rows_to_skip = _header_rows(options) if part.start == 0 else 0
    try:
        with Utf8Stream(file, header.encoding, part) as stream:
            for chunk in chunks(stream, header.delimiter, options, size):
                cells = parser.columns(chunk)
                if cells and rows_to_skip:
                    cells, rows_to_skip = [column[rows_to_skip:] for column in cells], 0
                if cells and len(cells[0]):
                    present = map(mask_missing, cells, missing)
                    yield pa.RecordBatch.from_arrays(list(present), wanted)
    except (pa.ArrowInvalid, UnicodeDecodeError, BadRecord) as error:
        raise _find_error(file, header, options, skip=unreadable is not None) or ValueError(
            f"{file}: cannot be read as CSV ({error})"
        ) from None


def find(
    file: str,
    header: CsvHeader,
    options: CsvOptions,
    wanted: Callable[[Mapping[str, str]], bool],
) -> Record | None:
    """Return the first row, name -> cell, that `wanted` accepts; None without one."""
    for record in _rows(file, header, options):
        cells = record.cells
        if len(cells) == len(header.names) and wanted(
            {header.names[place]: cells[place] for place in header.kept}
        ):
            return record
    return None


def _rows(file: str, header: CsvHeader, options: CsvOptions) -> Iterator[Record]:
    """Yield the records below the header, if there is one."""
    records = CsvRecords(lines(file, header.encoding), header.delimiter, options)
    return islice(records, _header_rows(options), None)


def _header_rows(options: CsvOptions) -> int:
    return int(options.header is not False)


def mask_missing(cells: pa.Array, words: Sequence[str]) -> pa.Array:
    """Return texts with null in place of the words that say that there is no value."""
    is_bytes = pa.types.is_binary(cells.type) or pa.types.is_large_binary(cells.type)
    trimmed = cells if is_bytes else pc.ascii_trim_whitespace(cells)
    known = pc.is_in(trimmed, value_set=pa.array(words, cells.type))
    if not pc.any(known).as_py():
        return cells
    # if_else with a scalar null reads beyond the end of a slice in Arrow 18.
    return pc.replace_with_mask(cells, known, pa.scalar(None, cells.type))


def _find_error(
    file: str, header: CsvHeader, options: CsvOptions, *, skip: bool
) -> ValueError | None:
    """Return the error of the first unreadable row; with `skip`, rows of any length are allowed."""
    number = len(header.names)
    try:
        for line, cells in _rows(file, header, options):
            if len(cells) != number and not skip:
                return ValueError(
                    f"{file}, line {line}: {len(cells)} cells under a "
                    f"{'header' if _header_rows(options) else 'first line'} of {number} "
                    f"columns. Correct it, or quote cells with {header.delimiter!r} in them."
                )
    except BadRecord as error:
        return ValueError(f"{file}, line {error.line}: {error}")
    except UnicodeDecodeError:
        return _encoding_error(file, header.encoding, options)
    return None


def _encoding_error(file: str, encoding: str, options: CsvOptions) -> InvalidEncoding:
    found = find_undecodable(file, encoding)
    place = f", line {found.line}: byte 0x{found.byte:02x}" if found else ": a byte"
    fix = (
        "Name the file's encoding in data.csv.encoding"
        if options.encoding is None
        else f"data.csv.encoding={options.encoding} is not the file's: name another"
    )
    return InvalidEncoding(
        f"{file}{place} is not text in {encoding}. {fix}; files of Excel and "
        "Windows in western Europe and America are cp1252, and others latin-1."
    )


def _first_records(
    file: str, encoding: str, options: CsvOptions
) -> tuple[str, list[str], Iterator[list[str]]]:
    """Return the delimiter, the cells of the first record, which may be long, and some below it."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    size, head = _LOOKED_AT, ""
    with Utf8Stream(file, encoding) as stream:
        while True:
            found = read_start(stream, size)
            whole = len(found) < size
            head += decoder.decode(found, final=whole)
            some = head[:_LOOKED_AT_FOR_DELIMITER]
            delimiter = options.delimiter or _delimiter(
                some, options, whole=whole and len(some) == len(head)
            )
            records = CsvRecords(io.StringIO(head, newline=""), delimiter, options)
            try:
                first = next(iter(records), None)
            except BadRecord as error:
                if whole or not isinstance(error, OpenQuote):
                    raise ValueError(f"{file}, line {error.line}: {error}") from None
                first = None
            if whole or (first is not None and records.position < len(head)):
                break  # a record that reaches the end of what was read may be longer
            if len(head) >= _LONGEST_HEADER:
                raise ValueError(
                    f"{file}: the first line, with the columns' names, does not end within "
                    f"{_LONGEST_HEADER >> 20} MB. Shorten it, or end a quote that is open in it."
                )
            size = 15 * len(head)
    if first is None or not head.strip():
        raise ValueError(f"{file}: has no line with the columns' names. Write them in its first.")
    records = CsvRecords(io.StringIO(head, newline=""), delimiter, options, may_be_cut=True)
    return delimiter, first.cells, (record.cells for record in islice(records, 1, None))


def _delimiter(text: str, options: CsvOptions, *, whole: bool) -> str:
    """Return the delimiter with which most rows have as many cells as the first row.

    If none of the usual ones splits the first row, it is another sign of that row which gives every
    row, two at least, as many cells.
    """

    def rows(delimiter: str) -> list[int]:
        lines = io.StringIO(text, newline="")
        records = CsvRecords(lines, delimiter, options, may_be_cut=True)
        found = [len(record.cells) for record in records]
        return found if whole or len(found) < 2 else found[:-1]  # its end was not read

    def fit(delimiter: str) -> tuple[bool, float, int]:
        found = rows(delimiter)
        alike = Counter(found)[found[0]] / len(found) if found else 0.0
        return found[0] > 1 if found else False, alike, found[0] if found else 0

    usual = max(_DELIMITERS, key=fit)
    if fit(usual)[0]:
        return usual
    lines = CsvRecords(io.StringIO(text, newline=""), usual, options, may_be_cut=True)
    first = next(iter(lines), None)
    signs = set(first.cells[0] if first else "") - {*_IN_VALUES, options.quote}
    fitting = {
        sign: len_[0]
        for sign in sorted(signs)
        if sign.isascii() and not sign.isalnum() and len(set(len_ := rows(sign))) == 1 < len(len_)
    }
    return max(fitting, key=fitting.__getitem__, default=usual)


def _are_repeated(rows: Iterable[Sequence[str]]) -> bool:
    """Return whether each delimiter is there twice: every second cell of all rows is empty."""
    return all(len(row) > 2 and all(row[::2]) and not any(row[1::2]) for row in rows)


def _check_names(names: Sequence[str], file: str) -> None:
    with_nul = next((name for name in names if "\0" in name), None)
    if with_nul is not None:
        raise ValueError(
            f"{file}: the column name {with_nul!r} has a NUL byte. Take it out, or name the file's "
            "encoding in data.csv.encoding: utf-16-le and utf-16-be have such bytes."
        )
    repeated = sorted(name for name, times in Counter(filter(None, names)).items() if times > 1)
    if repeated or not all(names):
        raise ValueError(
            f"{file}: the first line must name every column once; "
            + (f"repeated: {', '.join(repeated)}." if repeated else "one name is empty.")
            + " If it is a row of data, set data.csv.header: false (init: --no-header)."
        )
