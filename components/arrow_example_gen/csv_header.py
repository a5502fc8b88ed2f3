"""How a CSV file is written: its encoding, its delimiter and the names of its columns."""

from __future__ import annotations

import codecs
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Literal

from components.arrow_example_gen.csv_options import CsvOptions
from components.arrow_example_gen.csv_text import (
    BadRecord,
    CsvRecords,
    OpenQuote,
    Utf8Stream,
    encoding_of,
    find_undecodable,
    read_start,
)
from components.arrow_example_gen.decompress import open_decompressed

_LOOKED_AT = 2**16
_LOOKED_AT_FOR_DELIMITER = 2**20  # of a longer header
_LONGEST_HEADER = 2**24
_IN_VALUES = "._-+'()[]\"\r\n\0"  # signs that are part of names and values
_CONTROLS = bytes({*range(0x20)} - {*b"\0\t\n\v\f\r\x1b"})
_MANY_CONTROLS = 4  # different ones; a delimiter may be one of them
_OTHER_FORMATS = (  # Excel's old one, Parquet, Arrow, web pages, JSON
    *(b"\xd0\xcf\x11\xe0", b"PK\x03\x04", b"PAR1", b"ARROW1"),
    *(b"<!doctype html", b"<html", b'{"', b'[{"'),
)

_CELLS = 20_000  # looked at below the first line, in whole rows, two of them at least
_MOST = 0.9  # share of numbers (or dates) that makes a column one of them
_RUN = 5  # so many whole numbers in a row, from 0 or 1, are column names and not values
_YEARS = range(1800, 2101)
_SHOWN = 60  # characters of a line in a message
_NUMBER = re.compile(
    r"[(+\-−]?\s?[$€£¥]?\s?[+\-−]?(\d{1,3}([,.'’ \u00a0\u202f]\d{3})+|\d+)?([.,]\d*)?"
    r"([eE][+-]?\d+)?\s?[%$€£¥]?\)?"
)
_DATE = re.compile(
    r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([T ,].*)?|\d{4}-\d{2}|\d{1,2}:\d{2}(:\d{2}(\.\d*)?)?"
    r"|\d{1,2}[-./ ]\s?[A-Za-z]{3,9}[-./ ,]\s?\d{2,4}([T ,].*)?|[A-Za-z]{3,9} \d{1,2},? \d{4}.*"
)
_NO_NAMES = {"", "na", "n/a", "nan", "null", "none", "?", "-", "unknown", "missing", "inf", "-inf"}

_Kind = Literal["number", "date", "text", "none"]


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

    def __init__(self, file: str, encoding: str, options: CsvOptions):
        line, byte = find_undecodable(file, encoding) or (None, None)
        place = ": a byte" if line is None else f", line {line}: byte 0x{byte:02x}"
        fix = (
            "Name the file's encoding in data.csv.encoding"
            if options.encoding is None
            else f"data.csv.encoding={options.encoding} is not the file's: name another"
        )
        super().__init__(
            f"{file}{place} is not text in {encoding}. {fix}; files of Excel and "
            "Windows in western Europe and America are cp1252, and others latin-1."
        )


def read_header(file: str, options: CsvOptions) -> CsvHeader:
    """Read the first line of a file, compressed or not, and detect how it is written.

    Raises:
        ValueError: it is empty or no text, or the first line names a column twice or not at all, or
            looks like data where the options do not say what it is.
    """
    with open_decompressed(file) as stream:
        head = read_start(stream, _LOOKED_AT)
    encoding = options.encoding or encoding_of(head)
    _check_is_text(head, file, encoding)
    try:
        delimiter, first, below = _first_records(file, encoding, options)
    except UnicodeDecodeError:
        raise InvalidEncoding(file, encoding, options) from None
    if options.header is False:
        numbered = tuple(f"column_{number}" for number in range(1, len(first) + 1))
        return CsvHeader(numbered, delimiter, encoding, tuple(range(len(first))))
    shown = " ".join(delimiter.join(first).split())
    shown = shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + "…"
    if options.header is None and _looks_like_data(first, below):
        raise ValueError(
            f"{file}: the first line looks like data: {shown!r}. "
            "If it is a row, set data.csv.header: false (init: --no-header), which names the "
            "columns column_1, column_2, ...; if it names the columns, set data.csv.header: true "
            "(init: --header)."
        )
    names = tuple(name.strip() for name in first)
    if len(names) == 1 and re.search(r"\S {2,}\S", names[0]):
        raise ValueError(
            f"{file} has several signs between two columns: {shown!r}. "
            "Write one sign between them, such as a comma."
        )
    dropped = [i for i in (0, len(names) - 1) if not names[i] and any(names)]
    kept = tuple(i for i in range(len(names)) if i not in dropped)
    _check_names([names[i] for i in kept], file)
    places = " and ".join({0: "first"}.get(i, "last") for i in dict.fromkeys(dropped))
    why = f"{file}: the {places} column has no name and is left out" if dropped else ""
    return CsvHeader(names, delimiter, encoding, kept, why)


def _check_is_text(head: bytes, file: str, encoding: str) -> None:
    """Refuse another format, which an encoding such as latin-1 would decode to something."""
    is_other = any(head[: len(start)].lower() == start.lower() for start in _OTHER_FORMATS)
    controls = {byte for byte in head if byte in _CONTROLS}
    is_utf16 = encoding.startswith(("utf-16", "utf-32")) or 4 * head.count(0) > len(head)
    if is_other or (len(controls) >= _MANY_CONTROLS and not is_utf16):
        raise ValueError(
            f"{file} is not CSV: it begins with {head[:12]!r}. Save the table as CSV, or set its "
            "format: data.source, or --source."
        )


def _first_records(
    file: str, encoding: str, options: CsvOptions
) -> tuple[str, list[str], list[list[str]]]:
    """Return the delimiter, the cells of the first record, which may be long, and some below it."""
    data, first = b"", None
    with Utf8Stream(file, encoding) as stream:
        for size in (_LOOKED_AT, _LOOKED_AT_FOR_DELIMITER, _LONGEST_HEADER):
            data += read_start(stream, size - len(data))
            whole = len(data) < size
            head = codecs.getincrementaldecoder("utf-8")().decode(data, final=whole)
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
        else:
            raise ValueError(
                f"{file}: the first line, with the columns' names, does not end within "
                f"{_LONGEST_HEADER >> 20} MB. Shorten it, or end a quote that is open in it."
            )
    if first is None or not head.strip():
        raise ValueError(f"{file}: has no line with the columns' names. Write them in its first.")
    return delimiter, first.cells, _some_rows(head, delimiter, options)[1:]


def _some_rows(text: str, delimiter: str, options: CsvOptions) -> list[list[str]]:
    """Return the cells of the records of a text that may end anywhere."""
    lines = io.StringIO(text, newline="")
    return [record.cells for record in CsvRecords(lines, delimiter, options, may_be_cut=True)]


def _delimiter(text: str, options: CsvOptions, *, whole: bool) -> str:
    """Return the delimiter with which most rows have as many cells as the first row.

    If none of the usual ones splits the first row, it is another sign of that row which gives every
    row, two at least, as many cells.
    """

    def widths(delimiter: str) -> list[int]:
        found = list(map(len, _some_rows(text, delimiter, options))) or [0]
        return found if whole or len(found) < 2 else found[:-1]  # its end was not read

    def fit(delimiter: str) -> tuple[bool, float, int]:
        found = widths(delimiter)
        return found[0] > 1, Counter(found)[found[0]] / len(found), found[0]

    usual = max(",;\t|", key=fit)
    if fit(usual)[0]:
        return usual
    first = next(iter(_some_rows(text, usual, options)), [""])[0]
    signs = {sign for sign in first if sign.isascii() and not sign.isalnum()}
    fitting = {sign: widths(sign) for sign in sorted(signs - {*_IN_VALUES, options.quote})}
    even = {sign: each[0] for sign, each in fitting.items() if len(set(each)) == 1 < len(each)}
    return max(even, key=even.__getitem__, default=usual)


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


def _looks_like_data(first: Sequence[str], rows: Iterable[Sequence[str]]) -> bool:
    """Return whether the cells of a first line are a row like the `rows` below it.

    They are one if a cell is a number or a date as the cells below it are. They are not if anything
    says that they are names: a text above numbers or dates, a date above numbers, years, or a
    count 0, 1, 2, ...
    """
    cells = [cell.strip() for cell in first]
    kinds = [_kind(cell) for cell in cells]
    many = max(2, _CELLS // len(cells))
    below = list(islice((row for row in rows if len(row) == len(cells)), many))
    columns = [[row[place].strip() for row in below] for place in range(len(cells))]
    if below:
        under = list(map(_column_kind, columns))
    else:  # there is none, or none of what was read of a wide file is whole
        under = [] if "text" in kinds else kinds
    pairs = list(zip(kinds, under, strict=False))
    if any(a in ("text", "date") and b in ("number", "date") and a != b for a, b in pairs):
        return False
    alike = [place for place, (a, b) in enumerate(pairs) if a in ("number", "date") and a == b]
    numbers = [place for place in alike if kinds[place] == "number"]
    return bool(alike) and not (numbers == alike and _are_names(cells, columns, numbers))


def _kind(cell: str) -> _Kind:
    if cell.lower() in _NO_NAMES:
        return "none"
    if any(map(str.isdigit, cell)):
        if _NUMBER.fullmatch(cell):
            return "number"
        if _DATE.fullmatch(cell):
            return "date"
    return "text"


def _column_kind(column: Sequence[str]) -> _Kind:
    """Return what most cells with a value are."""
    kinds = [kind for kind in map(_kind, column) if kind != "none"]
    if not kinds:
        return "none"
    many = _MOST * len(kinds)
    if kinds.count("number") >= many:
        return "number"
    return "date" if kinds.count("date") >= many else "text"


def _are_names(cells: Sequence[str], columns: Sequence[Sequence[str]], places: list[int]) -> bool:
    """Whether numbers above numbers are names: years, or 0, 1, 2, ... as pandas numbers columns."""
    names = [_whole(cells[place]) for place in places]
    rows = list(zip(*(map(_whole, columns[place]) for place in places), strict=True))
    steps = {b - a for a, b in pairwise(names)}
    if names[:1] in ([0], [1]) and steps <= {1}:
        is_long = len(names) >= _RUN or cells[0] == ""  # an index is beside them
        return is_long and tuple(names) not in rows
    is_series = all(name in _YEARS for name in names) and len(steps) <= 1 and 0 not in steps
    return is_series and not any(value in range(1000, 10_000) for row in rows for value in row)


def _whole(cell: str) -> int:
    """Return a whole number, or -1."""
    return int(cell) if cell.isascii() and cell.isdigit() and len(cell) < 19 else -1
