"""The records of a CSV text, one by one, as Python's `csv` module reads them.

It is slower than Arrow's reader and decides where the two differ.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from components.arrow_example_gen.csv_options import CsvOptions

LONGEST_RECORD = 2**28  # bytes

csv.field_size_limit(LONGEST_RECORD)


class Record(NamedTuple):
    """A row.

    Attributes:
        line: number of its first line, from 1.
        cells: its cells.
    """

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
        """Read lines, each with its end.

        Args:
            lines: split at LF, CRLF and CR.
            delimiter: between cells.
            options: quote and comment.
            may_be_cut: the lines may end within a quoted cell; its record is read as far as it is.
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
        """Yield each record.

        Raises:
            BadRecord: it cannot be read; names its line.
        """
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
