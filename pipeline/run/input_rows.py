"""Read rows to predict in batches: any format of `run`, JSON lines, or standard input.

CSV, Parquet, Arrow and TFRecord are read by the same code as in `run`.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import sys
import tempfile
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, cast

from components.arrow_example_gen.decompress import content_name
from pipeline.common.errors import ConfigError
from pipeline.common.sources import COLUMNAR, SUFFIXES, Source, unknown_format
from pipeline.data import data_sources
from pipeline.data.data_sources import source_of_folder
from pipeline.data.tables import open_csv, open_table

if TYPE_CHECKING:
    import pyarrow as pa

    from components import CsvOptions
    from components.arrow_example_gen.columns import Kind, Table
    from components.arrow_example_gen.csv_types import NumberTexts
    from components.arrow_example_gen.parquet import ParquetTable
    from pipeline.run.json_lines import JsonRow

InputFormat = Literal["csv", "parquet", "arrow", "tfrecord", "jsonl"]
_T = TypeVar("_T")
_BATCH_ROWS = 1024
_STANDARD_INPUT = "-"

_ENDINGS: dict[str, InputFormat] = {
    **SUFFIXES,
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}


def _number_texts(options: CsvOptions | None = None) -> NumberTexts:
    from components.arrow_example_gen.csv_types import NumberTexts

    return (
        NumberTexts() if options is None else NumberTexts(options.decimal or ".", options.formatted)
    )


@dataclass
class InputRows:
    """The rows of one file or table.

    Attributes:
        path: Path of the file, for messages.
        columns: Names of the columns.
        batches: The rows in columns, at most `BATCH_ROWS` at a time.
        unreadable: Rows that were skipped.
        why_unreadable: What is wrong with them.
        needed: Columns that a model reads, with their kinds; set this before the first batch.
        line_of: Returns the line of a row by its number from 0; None if the format has no lines.
        texts: How texts write numbers.
        place: Returns `, line 17` for a column and the text of a cell in it; "" if unknown.
    """

    path: str
    columns: Sequence[str]
    batches: Iterator[pa.RecordBatch]
    texts: NumberTexts = field(default_factory=_number_texts)
    place: Callable[[str, str], str] = field(default=lambda _column, _text: "")
    unreadable: list[str] = field(default_factory=list)
    why_unreadable: str = "with more or fewer cells than the header"
    needed: Mapping[str, Kind] = field(default_factory=dict)
    line_of: Callable[[int], int] | None = None

    def location(self, column: str, text: str, row: int) -> str:
        """Return `, line 17` for a cell, or `, row 3` for a format without lines.

        Args:
            column: Name of the column.
            text: Text of the cell.
            row: Number of the row, from 0.
        """
        if self.line_of is not None:
            return f", line {self.line_of(row)}"
        return self.place(column, text) or f", row {row + 1}"


def format_of(path: str) -> InputFormat:
    """Return the format of a file by its name.

    Raises:
        ConfigError: The name does not identify the format, or the compression is not supported.
    """
    if path == _STANDARD_INPUT:
        return "csv"
    if Path(path).is_dir():
        return source_of_folder(Path(path))
    try:
        suffix = Path(content_name(path)).suffix.lower()
    except ValueError as error:
        raise ConfigError(f"--data: {error}") from None
    if suffix in _ENDINGS:
        return _ENDINGS[suffix]
    raise ConfigError(unknown_format(path, "jsonl"))


@contextlib.contextmanager
def input_files(path: str, kind: InputFormat) -> Iterator[list[Path]]:
    """Yield the files on this machine that hold the rows; standard input is copied into one.

    Raises:
        ConfigError: There is no file, or there are several in a format other than a table's.
    """
    if path == _STANDARD_INPUT:
        with tempfile.NamedTemporaryFile(prefix="predict-") as spooled:
            shutil.copyfileobj(sys.stdin.buffer, spooled)
            spooled.flush()
            yield [Path(spooled.name)]
        return
    source = "csv" if kind == "jsonl" else kind
    found = data_sources.files(path, "--data", source=source, base="the working directory")
    if len(found) > 1 and kind not in COLUMNAR:
        raise ConfigError(f"--data={path}: {len(found)} files match; name one.")
    yield found


def open_rows(
    files: Sequence[Path], shown: str, kind: InputFormat, options: CsvOptions, *, skip: bool
) -> InputRows:
    """Open a file, or the files of one Parquet or Arrow table.

    Args:
        files: Files on this machine, from `input_files`.
        shown: The path that the user gave, for messages.
        kind: The format.
        options: The CSV dialect; how its cells are read holds for the texts of all formats.
        skip: Skip rows that cannot be read.

    Raises:
        ConfigError: The file does not have this format.
    """
    if kind == "csv":
        return _open_csv(files[0], shown, options, skip=skip)
    if kind == "parquet" or kind == "arrow":
        rows = _open_parquet(files, shown, kind)
    elif kind == "jsonl":
        rows = _jsonl(files[0], shown, options, skip=skip)
    else:
        rows = _open_tfrecord(files[0], shown, skip=skip)
    rows.texts = _number_texts(options)
    rows.batches = (_mask_missing(batch, rows.needed, options) for batch in rows.batches)
    return rows


def _mask_missing(
    batch: pa.RecordBatch, needed: Collection[str], options: CsvOptions
) -> pa.RecordBatch:
    """Return a batch with null where a CSV would have a word for a missing value, such as -999."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as types

    from components.arrow_example_gen.csv_table import mask_missing

    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        words = options.missing_words(name) if name in needed else ()
        if types.is_dictionary(column.type):
            column = column.dictionary_decode()
        kind = column.type
        if words and (
            types.is_string(kind)
            or types.is_large_string(kind)
            or types.is_binary(kind)
            or types.is_large_binary(kind)
        ):
            column = mask_missing(column, words)
        elif (types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind)) and (
            numbers := _numbers_in(words)
        ):
            known = pc.is_in(column.cast(pa.float64(), safe=False), value_set=pa.array(numbers))
            column = pc.replace_with_mask(column, known, pa.scalar(None, kind))
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _numbers_in(words: Sequence[str]) -> list[float]:
    """Return the words for missing values that are numbers: -999 of a CSV is -999.0 of Parquet."""
    found = []
    for word in words:
        with contextlib.suppress(ValueError):
            found.append(float(word.replace(",", ".")))
    return [number for number in found if math.isfinite(number)]


def _open_csv(file: Path, shown: str, options: CsvOptions, *, skip: bool) -> InputRows:
    from components.arrow_example_gen import csv_types

    try:
        table = open_csv([file], options)
    except ConfigError as error:
        raise _error(error, file, shown) from None

    def place(column: str, text: str) -> str:
        record = table.find(str(file), lambda row: row[column] == text)
        return f", line {record.line}" if record else ""

    rows = _table_rows(table, table.columns, file, shown, skip=skip)
    first = next(_table_rows(table, table.columns, file, shown, skip=skip).batches, None)
    rows.texts, rows.place = _number_texts(options), place
    if first is not None:
        delimiter = table.headers[str(file)].delimiter
        decimal = csv_types.decimal_of(csv_types.count(first), options, delimiter)
        rows.texts = replace(rows.texts, decimal=decimal)
    return rows


def _open_parquet(files: Sequence[Path], shown: str, source: Source) -> InputRows:
    folders = [str(files[0].parent)]
    if shown != _STANDARD_INPUT:
        folders = data_sources.column_folders(shown, "--data", source=source)
    table = cast("ParquetTable", open_table(files, source, folders=folders))
    return _table_rows(table, list(table.columns), files[0], shown, skip=False)


def _open_tfrecord(file: Path, shown: str, *, skip: bool) -> InputRows:
    """Return rows with the features of all records; each record keeps its types."""
    table = open_table([file], "tfrecord")
    names: dict[str, None] = {}
    try:
        for block in table.all_blocks(unreadable=[] if skip else None):
            names.update(dict.fromkeys(block.cells.schema.names))
    except ValueError as error:
        raise _error(error, file, shown) from None
    if not names:
        raise ConfigError(f"--data={shown}: no record has a feature.")
    rows = _table_rows(table, list(names), file, shown, skip=skip)
    rows.why_unreadable = "damaged or not a tf.Example"
    return rows


def _table_rows(
    table: Table, names: Sequence[str], file: Path, shown: str, *, skip: bool
) -> InputRows:
    unreadable: list[str] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for block in table.all_blocks(names, unreadable=unreadable if skip else None):
            for start in range(0, len(block.places), _BATCH_ROWS):
                yield block.cells.slice(start, _BATCH_ROWS)

    found = _with_shown_path(batches(), file, shown)
    return InputRows(shown, names, found, unreadable=unreadable)


def _jsonl(file: Path, shown: str, options: CsvOptions, *, skip: bool) -> InputRows:
    from pipeline.run.json_lines import json_batch, json_rows

    unreadable: list[str] = []
    passed = unreadable if skip else None
    lines = array("q")

    def rows() -> Iterator[JsonRow]:
        yield from json_rows(file, shown, needed=found.needed, unreadable=passed)

    def batches() -> Iterator[pa.RecordBatch]:
        read = rows()
        while some := list(islice(read, _BATCH_ROWS)):
            lines.extend(row.line for row in some)
            try:
                batch = json_batch(some, found.columns, found.needed, formatted=options.formatted)
            except ValueError as error:
                raise ValueError(f"{shown}, {error}") from None
            yield batch

    found = InputRows(shown, [], iter(()), unreadable=unreadable)
    found.why_unreadable = "which are not JSON objects of values"
    found.line_of = lines.__getitem__
    found.columns = list(
        dict.fromkeys(n for row in _with_shown_path(rows(), file, shown) for n in row.values)
    )
    unreadable.clear()
    found.batches = _with_shown_path(batches(), file, shown)
    return found


def _with_shown_path(batches: Iterator[_T], file: Path, shown: str) -> Iterator[_T]:
    """Yield the batches; errors name the path and options of the command line."""
    try:
        yield from batches
    except ConfigError:
        raise
    except ValueError as error:
        raise _error(error, file, shown) from None


def _error(error: ValueError, file: Path, shown: str) -> ConfigError:
    message = str(error).replace(str(file), shown)
    if "is not a TFRecord file" in message:
        message += " Set its format with --source."
    if "data.csv." in message:
        message += " To set data.csv, name a pipeline's YAML with --config."
    return ConfigError(f"--data: {message}")
