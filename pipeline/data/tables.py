"""Open the files of a user, of each format, as the tables that ArrowExampleGen reads."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from pipeline.common.errors import ConfigError
from pipeline.common.sources import Source

if TYPE_CHECKING:
    from components import CsvOptions
    from components.arrow_example_gen.columns import Block, Table
    from components.arrow_example_gen.csv_table import CsvTable

Value: TypeAlias = Any
"""An int, float, str or bytes."""

Rows: TypeAlias = Sequence[Sequence[Value] | None]
"""The values of each row of a column; None for a row without values."""

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


def open_table(
    found: Iterable[Path],
    source: Source,
    csv: CsvOptions | None = None,
    folders: str | Sequence[str] = (),
) -> Table:
    """Return files as one table, as ArrowExampleGen opens them.

    Args:
        found: The files.
        source: Their format.
        csv: The CSV dialect; None: the defaults.
        folders: Where Parquet or Arrow files were found.

    Raises:
        ConfigError: A file has another format, or columns that are not those of the first one.
    """
    from components import CsvOptions
    from components.arrow_example_gen import csv_table, parquet
    from components.arrow_example_gen.tfrecord import TfrecordTable

    names = [str(file) for file in found]
    with config_errors():
        if source == "csv":
            return csv_table.open_table(names, csv or CsvOptions())
        if source == "tfrecord":
            return TfrecordTable(tuple(names))
        return parquet.open_table(names, folders)


def open_csv(found: Iterable[Path], options: CsvOptions) -> CsvTable:
    """Return CSV files as one table, see `open_table`."""
    return cast("CsvTable", open_table(found, "csv", options))


def check_features(kinds: Collection[str]) -> None:
    """Raise a ConfigError if there is no column: records are not tf.Examples with features."""
    if not kinds:
        raise ConfigError("no record has a feature: these are not tf.Examples with columns.")


def all_blocks(table: Table) -> Iterator[Block]:
    """Yield the rows of all files, with ConfigErrors for those that cannot be read."""
    with config_errors():
        yield from table.all_blocks()


@contextlib.contextmanager
def config_errors(label: str = "") -> Iterator[None]:
    """Convert errors in a file into ConfigErrors.

    Args:
        label: What the messages begin with.
    """
    try:
        yield
    except ConfigError:
        raise
    except ValueError as error:
        message = f"{label}{error}"
        if re.search("is not a (TFRecord|Parquet or Arrow) file", message):
            message += " Set data.source to its format."
        raise ConfigError(message) from error
