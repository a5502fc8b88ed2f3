"""Open the files of a user, of each format, as the tables that ArrowExampleGen reads."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from components import CsvOptions
from components.arrow_example_gen import csv_table, csv_types, parquet
from components.arrow_example_gen.columns import Block, Table
from components.arrow_example_gen.images import ImageTable
from pipeline.common.errors import ConfigError
from pipeline.common.sources import Source

Value: TypeAlias = Any
"""An int, float, str or bytes."""

Rows: TypeAlias = Sequence[Sequence[Value] | None]
"""The values of each row of a column; None for a row without values."""

ColumnType = Literal["int", "float", "string", "unknown"]


def beyond_int64(values: Iterable[str]) -> str | None:
    """Return the first integer beyond int64 if all values are integers, else None.

    It is the reason why a column of a CSV is text.
    """
    texts = pc.ascii_trim_whitespace(pa.array(list(values), pa.string()))
    if not pc.all(pc.match_substring_regex(texts, "^[+-]?[0-9]+$")).as_py():
        return None
    beyond = texts.filter(csv_types.beyond_int64(texts))
    return beyond[0].as_py() if len(beyond) else None


def open_table(
    found: Iterable[Path],
    source: Source,
    csv: CsvOptions | None = None,
    folders: str | Sequence[str] = (),
) -> Table:
    """Return files as one table, as ArrowExampleGen opens them.

    `folders` are those where Parquet or Arrow files were found.

    Raises:
        ConfigError: A file has another format, or columns that are not those of the first one.
    """
    names = [str(file) for file in found]
    with config_errors():
        if source == "csv":
            return csv_table.open_table(names, csv or CsvOptions())
        if source == "tfrecord":
            from components.arrow_example_gen.tfrecord import TfrecordTable

            return TfrecordTable(tuple(names))
        if source == "images":
            return ImageTable(tuple(names))
        return parquet.open_table(names, folders)


def open_csv(found: Iterable[Path], options: CsvOptions) -> csv_table.CsvTable:
    """Return CSV files as one table, see `open_table`."""
    return cast("csv_table.CsvTable", open_table(found, "csv", options))


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
    """Convert errors in a file into ConfigErrors whose messages begin with `label`."""
    try:
        yield
    except ConfigError:
        raise
    except ValueError as error:
        message = f"{label}{error}"
        if re.search("is not a (TFRecord|Parquet or Arrow) file", message):
            message += " Set data.source to its format."
        raise ConfigError(message) from error
