"""Read the cells of new rows as those of the model's training data were read.

The Trainer writes the YAML's `data.csv` next to the exported model, `assets.extra/reading.json`:

    {"version": 1, "source": "csv", "csv": {"missing": [""], "decimal": ",", ...}}

So a model gives one answer for one row, in every format. Dates are read by the model itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.run.input_rows import InputFormat

if TYPE_CHECKING:
    from components import CsvOptions

_FILE = "assets.extra/reading.json"
_COLUMNS = "assets.extra/raw_columns.json"
_OF_CELLS = ("missing", "missing_in", "formatted", "decimal")
_OF_FILES = ("header", "delimiter", "quote", "encoding", "comment")


def cell_reading(
    version: Path | str,
    files: Sequence[Path],
    shown: str,
    kind: InputFormat,
    given: CsvOptions | None,
) -> CsvOptions:
    """Return how to read the cells of rows for a model; print what differs from its training data.

    Words for missing values, number formats and the decimal mark hold for the texts of all formats.
    What the YAML of `--config` sets wins over what the model says. Where a CSV file is written
    otherwise than the training data (delimiter, encoding, ...), that is detected.

    Args:
        version: Folder of the SavedModel, on any file system of TensorFlow.
        files: The files of rows, on this machine.
        shown: Their path for messages.
        kind: Their format.
        given: `data.csv` of `--config`; None: no `--config`.
    """
    from components import CsvOptions

    columns = {each["name"]: each["dtype"] for each in _read(version, _COLUMNS).get("columns", [])}
    trained = _trained(_read(version, _FILE), columns)
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
    for name in _OF_CELLS:
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
    fitting = _fit(files[0], options, columns, fixed=explicit)
    changes = [
        f"{name} {_text(getattr(fitting, name))} instead of {_text(getattr(options, name))}"
        for name in (*_OF_FILES, "decimal")
        if getattr(fitting, name) != getattr(options, name)
    ]
    if changes:
        _print(
            f"--data={shown} is written otherwise than the training data and is read with "
            f"{', '.join(changes)}. Check some predictions; to read it another way, add --config "
            "and --set data.csv.FIELD=VALUE."
        )
    return fitting


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


def _fit(
    file: Path, options: CsvOptions, columns: Collection[str], *, fixed: Collection[str]
) -> CsvOptions:
    """Return options that can read a CSV file with the model's columns; else the same options."""
    from components.arrow_example_gen.csv_header import read_header

    if options.encoding and "encoding" not in fixed and _is_utf8(str(file)):
        # Other encodings can decode UTF-8 as well, to other texts.
        options = options.model_copy(update={"encoding": "utf-8"})
    detected = type(options)().model_dump(include={*_OF_FILES})
    # A header of the model's column_1, column_2, ... is not a row.
    first = {"header": True} if options.header is False else {}
    for update in (first, {}, detected):
        candidate = options.model_copy(update=update)
        try:
            header = read_header(str(file), candidate)
        except ValueError:
            continue
        if set(columns) <= set(header.columns):
            if update is detected:
                candidate = candidate.model_copy(update={"delimiter": header.delimiter})
            return _fit_decimal(file, candidate, columns, is_other=update is detected)
    return options


def _is_utf8(file: str) -> bool:
    """Return whether a file has other texts than ASCII, and all are UTF-8."""
    from components.arrow_example_gen.csv_text import find_undecodable

    try:
        is_ascii = find_undecodable(file, "ascii") is None
        return not is_ascii and find_undecodable(file, "utf-8") is None
    except ValueError:  # damaged: raised again when it is read
        return False


def _fit_decimal(
    file: Path, options: CsvOptions, columns: Collection[str], *, is_other: bool
) -> CsvOptions:
    """Return the options without their decimal mark if the numbers of the file have the other.

    Only where the file is another dialect: elsewhere a number with the other mark is an error.
    """
    from components.arrow_example_gen import csv_table, csv_types

    table = csv_table.open_table([str(file)], options)
    if options.decimal is None or not (is_other or table.delimiter == options.decimal):
        return options
    names = [name for name in table.columns if name in columns and name not in options.formatted]
    try:
        block = next(table.all_blocks(names), None)
    except ValueError:  # raised again when the rows are read
        return options
    counts = csv_types.count(block.cells).values() if block is not None else ()
    commas = any(each.commas or each.comma[0] for each in counts)
    points = any(each.points or each.comma[1] for each in counts)
    other = "." if options.decimal == "," else ","
    if (commas, points) == (options.decimal == ".", options.decimal == ","):
        return options.model_copy(update={"decimal": other})
    return options


def _text(value: Any) -> str:
    if hasattr(value, "model_dump"):
        return _text(value.model_dump(exclude_defaults=True))
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_text(each)}" for name, each in value.items()) + "}"
    return repr(list(value)) if isinstance(value, tuple) else repr(value)


def _print(sentence: str) -> None:
    print(f"Note: {sentence}", file=sys.stderr)
