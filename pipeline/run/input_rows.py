"""Read rows to predict in batches: any format of `run`, by its code, or standard input.

Cells are read as those of the model's training data. The Trainer writes the YAML's `data.csv` next
to the exported model, `assets.extra/reading.json`:

    {"version": 1, "source": "csv", "csv": {"missing": [""], "decimal": ",", ...}}

With images it also has `"images": ["image"]`, the columns of their bytes, and
`"files": {"image": "photo"}`, which of these are read from the files that a column names.

So a model gives one answer for one row, in every format. Dates are read by the model itself.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from pipeline.common.errors import ConfigError
from pipeline.common.sources import COLUMNAR, Source
from pipeline.data import data_sources
from pipeline.data.tables import open_csv, open_table

if TYPE_CHECKING:
    import pyarrow as pa

    from components import CsvOptions
    from components.arrow_example_gen.columns import Kind, Table
    from components.arrow_example_gen.parquet import ParquetTable


_T = TypeVar("_T")
_BATCH_ROWS = 1024
_STANDARD_INPUT = "-"


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
        decimal: The mark in numbers of texts.
        images: Columns of encoded images, which `add_images` finds.
        place: Returns `, line 17` for a column and the text of a cell in it; "" if unknown.
    """

    path: str
    columns: Sequence[str]
    batches: Iterator[pa.RecordBatch]
    decimal: str = "."
    place: Callable[[str, str], str] = field(default=lambda _column, _text: "")
    unreadable: list[str] = field(default_factory=list)
    why_unreadable: str = "with more or fewer cells than the header"
    images: Collection[str] = ()
    needed: Mapping[str, Kind] = field(default_factory=dict)

    def location(self, column: str, text: str, row: int) -> str:
        """Return `, line 17` for a cell, or `, row 3` of row 2, from 0, for other formats."""
        return self.place(column, text) or f", row {row + 1}"


def format_of(path: str) -> Source:
    """Return the format of a file by its name; CSV for standard input."""
    return "csv" if path == _STANDARD_INPUT else data_sources.source_of(path)


@contextlib.contextmanager
def input_files(path: str, kind: Source) -> Iterator[list[Path]]:
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
    found = data_sources.files(path, "--data", source=kind, base="the working directory")
    if len(found) > 1 and kind not in COLUMNAR:
        raise ConfigError(f"--data={path}: {len(found)} files match; name one.")
    yield found


def open_rows(
    files: Sequence[Path], shown: str, kind: Source, options: CsvOptions, *, skip: bool
) -> InputRows:
    """Open a file, or the files of one Parquet or Arrow table, from `input_files`.

    How `options` say that cells are read holds for the texts of all formats. With `skip`, rows that
    cannot be read are skipped. `shown` is the path for messages.

    Raises:
        ConfigError: The file does not have this format.
    """
    if kind == "csv":
        return _open_csv(files[0], shown, options, skip=skip)
    if kind == "images":
        from components.arrow_example_gen.images import KINDS

        table = open_table(files, kind)
        rows = _table_rows(table, list(KINDS), files[0], shown, skip=skip)
        rows.why_unreadable = "damaged or no images"
        return rows
    if kind == "parquet" or kind == "arrow":
        rows = _open_parquet(files, shown, kind)
    else:
        rows = _open_tfrecord(files[0], shown, skip=skip)
    rows.decimal = options.decimal or "."
    rows.batches = (_mask_missing(batch, rows.needed, options) for batch in rows.batches)
    return rows


def add_images(
    rows: InputRows, files: Sequence[Path], kind: Source, version: Path | str, *, skip: bool
) -> None:
    """Read the files that columns of the rows name, as the training of a model did, in place."""
    import pyarrow as pa

    from components.arrow_example_gen.images import Images, images_of

    reading = _read(version, _READING)
    rows.images = reading.get("images", ())
    named = {
        name: column
        for name, column in reading.get("files", {}).items()
        if name not in rows.columns and column in rows.columns
    }
    held = [name for name in rows.images if name in rows.columns and kind != "images"]
    images = Images(files=named, columns=tuple(held))
    if not images.names:
        return
    rows.columns = [*rows.columns, *named]
    unreadable = rows.unreadable if skip else None

    def batches(before: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        start = 0
        for batch in before:
            places = np.arange(start, start + batch.num_rows)
            start += batch.num_rows
            for kept, added in images_of(str(files[0]), places, batch, images, unreadable):
                taken = batch.take(pa.array(kept))
                columns = {**dict(zip(taken.schema.names, taken.columns, strict=True)), **added}
                yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    rows.batches = _with_shown_path(batches(rows.batches), files[0], rows.path)


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
    rows.decimal, rows.place = options.decimal or ".", place
    if first is not None:
        delimiter = table.headers[str(file)].delimiter
        rows.decimal = csv_types.decimal_of(csv_types.count(first), options, delimiter)
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
    message = message.replace("set data.on_damage: skip", "add --on-error skip")
    if "data.csv." in message:
        message += " To set data.csv, name a pipeline's YAML with --config."
    return ConfigError(f"--data: {message}")


_COLUMNS, _READING = "assets.extra/raw_columns.json", "assets.extra/reading.json"


def cell_reading(
    version: Path | str,
    files: Sequence[Path],
    shown: str,
    kind: Source,
    given: CsvOptions | None,
) -> CsvOptions:
    """Return how to read the cells of rows for a model; print what differs from its training data.

    What the YAML of `--config` sets (`given`) wins over what the model says. UTF-8 is read as such
    where the training data had another encoding. `shown` is the path of the files for messages.
    """
    from components import CsvOptions

    columns = {each["name"]: each["dtype"] for each in _read(version, _COLUMNS).get("columns", [])}
    trained = _trained(_read(version, _READING), columns)
    if trained is None:
        options = given or CsvOptions()
        if kind != "csv":  # its texts are values
            return options.model_copy(update={"missing": (), "missing_in": {}})
        if given is None:
            _print(
                f"{version} does not say how the cells of its training data were read. The CSV is "
                "read by the defaults of data.csv; name the YAML of the training with --config."
            )
        return options
    explicit = {} if given is None else {n: getattr(given, n) for n in given.model_fields_set}
    for name in ("missing", "missing_in", "decimal"):
        before = getattr(trained, name)
        if before is not None and explicit.get(name, before) != before:
            _print(
                f"data.csv.{name} of --config is {_text(explicit[name])}, but the model was "
                f"trained with {_text(before)}. --config is used, so a row may get another "
                "prediction than in training; leave --config out to read as in training."
            )
    # Validated again: what both say may be contradictory.
    options = CsvOptions.model_validate({**dict(trained), **explicit})
    if kind != "csv":
        return options
    if options.encoding and "encoding" not in explicit and _is_utf8(str(files[0])):
        # Other encodings can decode UTF-8 as well, to other texts.
        _print(
            f"--data={shown} is in UTF-8 and is read so, not in {options.encoding} as the training "
            "data. Check some predictions; to read it another way, add --config and --set "
            "data.csv.encoding=..."
        )
        return options.model_copy(update={"encoding": "utf-8"})
    return options


def _read(version: Path | str, name: str) -> dict[str, Any]:
    from tensorflow.io import gfile

    if not gfile.exists(f"{version}/{name}"):
        return {}
    with gfile.GFile(f"{version}/{name}") as stream:
        return json.loads(stream.read())


def _trained(reading: dict[str, Any], columns: dict[str, str]) -> CsvOptions | None:
    """Return the reading of the training data; None if the model does not say."""
    from components import CsvOptions

    if not reading:
        return None
    if reading["csv"] is not None:
        return CsvOptions.model_validate(reading["csv"])
    # Every text of a Parquet file was a value; in a column of numbers, NA cannot be one.
    words = CsvOptions().missing
    numbers = {name: words for name, dtype in columns.items() if dtype != "string"}
    return CsvOptions(missing=("",), missing_in=numbers)


def _is_utf8(file: str) -> bool:
    """Return whether a file has other texts than ASCII, and all are UTF-8."""
    from components.arrow_example_gen.csv_text import find_undecodable

    try:
        is_ascii = find_undecodable(file, "ascii") is None
        return not is_ascii and find_undecodable(file, "utf-8") is None
    except ValueError:  # damaged: raised again when it is read
        return False


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_text(each)}" for name, each in value.items()) + "}"
    return repr(list(value)) if isinstance(value, tuple) else repr(value)


def _print(sentence: str) -> None:
    print(f"Note: {sentence}", file=sys.stderr)
