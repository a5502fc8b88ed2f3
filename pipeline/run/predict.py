"""Apply the pushed model to raw rows.

Rows become tf.Examples with the columns and types that the trainer's export lists next to the
model. The model's serving signature does the rest, including normalization.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from pipeline.common.errors import ConfigError, missing_columns
from pipeline.common.json_types import JsonValue
from pipeline.common.output_file import output_file
from pipeline.common.sources import Source
from pipeline.run.input_rows import (
    InputRows,
    add_images,
    cell_reading,
    format_of,
    input_files,
    open_rows,
)
from pipeline.run.predictor import Predictions, Predictor, find_version
from pipeline.run.raw_rows import Wrong
from shared_core.atomic_files import message_stream

if TYPE_CHECKING:
    from components import CsvOptions

_SHOWN_ROWS = 10


@dataclass
class _Batch:
    """Rows with their predictions."""

    numbers: list[int]  # from 1, among all readable rows
    kept: list[list[JsonValue]]  # one list per column of the input
    predictions: Predictions


@dataclass
class _Refused:
    """Rows that the model cannot take."""

    count: int = 0
    first: str = ""
    unreadable: list[str] = field(default_factory=list)
    why_unreadable: str = ""

    def describe(self) -> str:
        """Return one line per reason; "" if no rows were skipped."""
        lines = []
        if self.count:
            rows = _rows(self.count)
            lines.append(f"{rows} skipped, with values that the model cannot read: {self.first}")
        if self.unreadable:
            lines.append(
                f"{_rows(len(self.unreadable))} skipped, {self.why_unreadable}, the first: "
                f"{self.unreadable[0][:80]!r}"
            )
        return "\n".join(lines)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def predict(
    model: Path,
    source: str,
    output: Path | None = None,
    *,
    kind: Source | None = None,
    keep: Sequence[str] | None = None,
    on_error: Literal["fail", "skip"] = "fail",
    csv_options: CsvOptions | None = None,
) -> int:
    """Write or show the predictions for every row of a file.

    Args:
        model: A SavedModel, or the folder of its numbered versions.
        source: A file, `package://...`, a folder or glob of Parquet or Arrow files, a folder of
            images, or `-`. It needs every raw column that the model reads, in any order.
        output: CSV to write; None: show the first rows.
        kind: Format of `source`; None: derived from its name.
        keep: Columns of the input to write; None: all but encoded images.
        on_error: Whether a row that the model cannot take is an error, or is skipped and counted.
        csv_options: `data.csv` of a YAML; what it sets wins over what the model says of the cells.

    Raises:
        ConfigError: The model or the file does not exist, a column is missing, or a cell has
            another type.
    """
    kind = kind or format_of(source)
    version = Path(find_version(str(model)))
    with input_files(source, kind) as files:
        if output is not None and output.exists() and any(map(output.samefile, files)):
            raise ConfigError(f"--output={output}: is the input file; name another file.")
        options = cell_reading(version, files, source, kind, csv_options)
        rows = open_rows(files, source, kind, options, skip=on_error == "skip")
        add_images(rows, files, kind, version, skip=on_error == "skip")
        kept = _kept(rows, keep)
        predictor = Predictor(version)
        rows.needed = predictor.kinds
        _check_columns(predictor, rows, tfrecord=kind == "tfrecord")
        refused = _Refused(unreadable=rows.unreadable, why_unreadable=rows.why_unreadable)
        batches = _batches(predictor, rows, kept, refused, on_error)
        first = next(batches, None)
        if first is None:
            raise ConfigError(f"--data={source}: {refused.describe() or 'no rows.'}")
        if output is None:
            shown = kept if keep is not None else []
            _show(first, shown, [kept.index(name) for name in shown])
        else:
            written = _write(kept, first, batches, output)
            message = f"{written:,} rows with predictions of {version}: {output}"
            print(message, file=message_stream(output))
        for line in filter(None, (refused.describe(), predictor.unseen.describe())):
            print(line, file=sys.stderr)
    return 0


def _kept(rows: InputRows, keep: Sequence[str] | None) -> list[str]:
    if keep is None:
        return [name for name in rows.columns if name not in rows.images]
    lacking = [name for name in keep if name not in rows.columns]
    if lacking:
        raise ConfigError(
            f"--keep={','.join(lacking)}: --data={rows.path} has no such column; it has "
            f"{', '.join(rows.columns)}."
        )
    return list(keep)


def _check_columns(predictor: Predictor, rows: InputRows, *, tfrecord: bool) -> None:
    """Raise if a file lacks a column that the model reads."""
    lacking = sorted(set(predictor.kinds) - set(rows.columns))
    others = [name for name in rows.columns if name not in predictor.kinds]
    if lacking and not tfrecord:  # in a tf.Example, a feature may be missing
        raise ConfigError(
            f"--data={rows.path}: {missing_columns(lacking, others)} (required by the model). "
            "Add them; leave a cell empty where the value is missing."
        )


def _batches(
    predictor: Predictor,
    rows: InputRows,
    kept: Sequence[str],
    refused: _Refused,
    on_error: str,
) -> Iterator[_Batch]:
    import pyarrow as pa

    start = 0
    for batch in rows.batches:
        names = batch.schema.names
        wanted = [*predictor.kinds, *(name for name in kept if name not in predictor.kinds)]
        filled = pa.RecordBatch.from_arrays(
            [
                batch[names.index(name)] if name in names else pa.nulls(batch.num_rows)
                for name in wanted
            ],
            wanted,
        )
        predictions, wrong = predictor(filled, rows.decimal)
        if wrong:
            if on_error == "fail":
                raise ConfigError(_error_message(wrong[0], rows, start))
            if not refused.first:  # finding the line reads the file again
                refused.first = _error_message(wrong[0], rows, start)
            refused.count += len(wrong)
        out = {each.row for each in wrong}
        places = [row for row in range(batch.num_rows) if row not in out]
        if places:
            taken = pa.array(places)
            columns = [filled[wanted.index(name)].take(taken).to_pylist() for name in kept]
            yield _Batch([start + row + 1 for row in places], columns, predictions)
        start += batch.num_rows


def _error_message(wrong: Wrong, rows: InputRows, start: int) -> str:
    location = rows.location(wrong.column, wrong.value, start + wrong.row)
    return (
        f"--data={rows.path}{location}: {wrong.column}={wrong.value!r} is not {wrong.expected}, "
        "which the model expects. Correct it, or skip such rows with --on-error skip. If data.csv "
        "of a pipeline's YAML describes such cells, name the YAML with --config."
    )


def _write(kept: Sequence[str], first: _Batch, rest: Iterator[_Batch], output: Path) -> int:
    from itertools import chain

    names = list(first.predictions)
    twice = [name for name in kept if name in names]
    if twice:
        raise ConfigError(
            f"--keep: both the input and the predictions have a column {twice[0]!r}; name the "
            "columns to keep without it."
        )
    rows = 0
    with output_file(output, newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow([*kept, *names])
        for batch in chain([first], rest):
            cells = [[_cell(value) for value in column] for column in batch.kept]
            # The shortest text of a float32 (1.700002e+09) is another number.
            values = [
                each.astype(np.float64) if each.dtype.kind == "f" else each
                for each in map(batch.predictions.__getitem__, names)
            ]
            writer.writerows(zip(*cells, *values, strict=True))
            rows += len(batch.numbers)
    return rows


def _cell(value: JsonValue) -> JsonValue:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list):
        return " ".join(str(_cell(each)) for each in value)
    return value


def _show(batch: _Batch, kept: Sequence[str], places: Sequence[int]) -> None:
    from rich.console import Console

    from pipeline.report.tables import Cell, Column, Row, Table, print_table

    rows = range(min(len(batch.numbers), _SHOWN_ROWS))
    columns = {"row": [str(batch.numbers[i]) for i in rows]}
    for name, place in zip(kept, places, strict=True):
        columns[name] = [str(_cell(batch.kept[place][i])) for i in rows]
    for name, values in batch.predictions.items():
        columns[name] = [v if isinstance(v := values[i], str) else f"{v:.4f}" for i in rows]
    cells = zip(*columns.values(), strict=True)
    headings = [Column(name, True) for name in columns]
    print_table(Console(), Table("", headings, [Row([*map(Cell, row)]) for row in cells]))
    if len(batch.numbers) > _SHOWN_ROWS:
        print(f"(the first {_SHOWN_ROWS} rows; write all of them with --output predictions.csv)")
