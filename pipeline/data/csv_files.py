"""CSV files as TFX reads them: the header's names, the cells of each row, the type of a column."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, TextIO

from pipeline.config.config import ConfigError

ColumnType = Literal["int", "float", "string", "unknown"]

_INT64 = range(-(2**63), 2**63)
_WHOLE = re.compile(r"\s*[+-]?\d+\s*")


def open_csv(file: Path, encoding: str = "utf-8") -> TextIO:
    """Opens a CSV file for `csv.reader`, one whose name ends in .gz through gzip."""
    if file.suffix == ".gz":
        return gzip.open(file, "rt", newline="", encoding=encoding)
    return file.open(newline="", encoding=encoding)


def wider(known: ColumnType, text: str) -> ColumnType:
    """The type of a column after one more value, as TFX's CSV reader infers it."""
    if not text or known == "string":
        return known
    try:
        if int(text) not in _INT64:
            return "string"
        return "int" if known == "unknown" else known
    except ValueError:
        pass
    try:
        float(text)
        return "float"
    except ValueError:
        return "string"


def beyond_int64(values: Iterable[str]) -> str | None:
    """The first whole number that int64 does not hold, where all values are whole numbers.

    It is why the column is text: to TFX's CSV reader, and as a uint64 of Parquet.
    """
    found = None
    for value in values:
        if not _WHOLE.fullmatch(value):
            return None
        if found is None and int(value) not in _INT64:
            found = value.strip()
    return found


def csv_rows(found: Iterable[Path]) -> Iterator[tuple[list[str], list[str]]]:
    """Header and cells of each row, as TFX reads them.

    Raises:
        ConfigError: a file is no CSV, its header is unusable, or a row has more or fewer cells.
    """
    known: list[str] = []
    for file in found:
        with open_csv(file) as stream:
            try:
                first_line = stream.readline()
                _check_first_line(first_line, file)
                # Exactly as TFX splits it.
                header = first_line.strip().split(",")
                _check_header(header, known, file)
                known = header
                reader = csv.reader(stream)
                for row in reader:
                    if not row:
                        continue
                    if len(row) != len(header):
                        raise ConfigError(
                            f"{file}, line {reader.line_num + 1}: {len(row)} cells under a header "
                            f"of {len(header)} columns. Correct it, or quote cells with commas."
                        )
                    yield header, row
            except (UnicodeDecodeError, csv.Error, gzip.BadGzipFile, EOFError) as error:
                raise ConfigError(
                    f"{file} is no UTF-8 CSV file ({error}). Set data.source to its format."
                ) from None


def _check_first_line(line: str, file: Path) -> None:
    """TFX splits the first line at every comma and takes the pieces as they are."""
    if line.startswith("\ufeff"):
        raise ConfigError(
            f"{file}: starts with a byte order mark, which would become part of the first column's "
            "name. Save it as UTF-8 without BOM."
        )
    if '"' in line:
        raise ConfigError(
            f"{file}: the first line has quotes, which TFX would take as part of the columns' "
            f"names: {line.strip()}. Write the names without quotes and without commas in them."
        )


def _check_header(header: list[str], known: list[str], file: Path) -> None:
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated or not all(header):
        raise ConfigError(
            f"{file}: the first line must name every column once; "
            + (f"repeated: {', '.join(repeated)}." if repeated else "one name is empty.")
        )
    if known and known != header:
        raise ConfigError(
            f"{file}: its header differs from the first file's: "
            f"{', '.join(sorted(set(known) ^ set(header))) or 'another order of columns'}. "
            "All CSV files of one data set need the same header."
        )
