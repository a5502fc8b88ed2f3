"""Open CSV files of a user as the table that ArrowExampleGen reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from pipeline.common.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

    from components import CsvOptions
    from components.arrow_example_gen.csv_table import CsvTable

ColumnType = Literal["int", "float", "string", "unknown"]

_INT64 = range(-(2**63), 2**63)
_DIGITS = 19  # digits of its largest value
_WHOLE = re.compile(r"\s*[+-]?\d+\s*")


def beyond_int64(values: Iterable[str]) -> str | None:
    """Return the first integer beyond int64 if all values are integers, else None.

    It is the reason why a column is text, in CSV and for a uint64 of Parquet.
    """
    found = None
    for value in values:
        if not _WHOLE.fullmatch(value):
            return None
        text = value.strip()
        digits = text.lstrip("+-0") or "0"  # Python converts at most 4,300 digits, including zeros
        sign = -1 if text.startswith("-") else 1
        if found is None and (len(digits) > _DIGITS or sign * int(digits) not in _INT64):
            found = text
    return found


def open_csv(found: Iterable[Path], options: CsvOptions) -> CsvTable:
    """Return the files as one table.

    Raises:
        ConfigError: A file is not CSV, or its header is unusable or differs from the first file's.
    """
    from components.arrow_example_gen.csv_table import open_table

    try:
        return open_table([str(file) for file in found], options)
    except ValueError as error:
        raise ConfigError(str(error)) from error


class CsvBlock(NamedTuple):
    """Rows of a file that begin at row `start`."""

    start: int
    cells: pa.RecordBatch


def csv_blocks(table: CsvTable) -> Iterator[CsvBlock]:
    """Yield the rows of all files as texts, in blocks of about 1 MB.

    Raises:
        ConfigError: A row has more or fewer cells than the header, a quote does not end, or bytes
            are not text.
    """
    try:
        for file in table.files:
            start = 0
            for cells in table.blocks(file):
                yield CsvBlock(start, cells)
                start += cells.num_rows
    except ValueError as error:
        raise ConfigError(str(error)) from error
