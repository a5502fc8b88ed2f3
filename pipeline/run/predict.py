"""The pushed model on raw rows: the first thing that anyone wants to try.

A CSV's cells become tf.Examples of the columns and types that the trainer's export lists beside the
model; the model's serving signature does the rest, normalisation included.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.common.whole_files import whole_file
from pipeline.config.config import ConfigError
from pipeline.data import data_sources
from pipeline.data.csv_files import open_csv

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

BATCH_ROWS = 1024
SHOWN_ROWS = 10


def predict_csv(model: Path, source: str, output: Path | None) -> int:
    """Writes (or shows) the predictions for every row of a CSV file.

    Args:
        model: a SavedModel, or a folder of numbered versions of it.
        source: CSV with a header line, or such a file in gzip (`rows.csv.gz`); it needs every raw
            column that the model reads, in any order. An empty cell is a missing value.
            `package://` paths work as in the YAML.
        output: CSV to write: the input's columns and the predictions'. None shows the first rows.

    Returns:
        0.

    Raises:
        ConfigError: no such model or file, a column that is missing, or a cell of another type.
    """
    files = data_sources.files(source, "--input")
    if len(files) > 1:
        raise ConfigError(f"--input={source}: {len(files)} files match; name one.")
    version = latest_version(model)
    with open_csv(files[0], encoding="utf-8-sig") as stream:
        reader = csv.DictReader(stream, restkey=None)
        header = list(reader.fieldnames or [])
        predictor = Predictor(version)
        predictor.check_columns(header, source)
        batches = _batches(reader)
        first = next(batches, None)
        if first is None:
            raise ConfigError(f"--input={source}: no rows below the header line.")
        if output is None:
            _show(predictor, first[:SHOWN_ROWS], more=len(first) > SHOWN_ROWS)
        else:
            rows = _write(predictor, header, first, batches, output)
            print(f"{rows:,} rows with predictions of {version}: {output}")
    return 0


def latest_version(model: Path) -> Path:
    """The SavedModel itself, or the highest-numbered version below the folder.

    Raises:
        ConfigError: there is none.
    """
    if (model / "saved_model.pb").is_file():
        return model
    versions = [
        folder
        for folder in (model.iterdir() if model.is_dir() else ())
        if folder.name.isdigit() and (folder / "saved_model.pb").is_file()
    ]
    if not versions:
        raise ConfigError(
            f"--model={model}: no SavedModel there, and none in a numbered folder below. "
            "`python -m pipeline run` prints where it pushed the model."
        )
    return max(versions, key=lambda folder: int(folder.name))


class Predictor:
    """A loaded SavedModel and the types of its raw columns."""

    def __init__(self, version: Path):
        import tensorflow as tf

        self._path = version
        self._loaded: Any = tf.saved_model.load(str(version))
        signatures = self._loaded.signatures
        listed = version / "assets.extra" / "raw_columns.json"
        if "serving_default" not in signatures or not listed.is_file():
            raise ConfigError(
                f"--model={version}: has no serving_default signature or no {listed.name} "
                "(the raw columns that it takes); use a model that this pipeline pushed."
            )
        self._serve = signatures["serving_default"]
        columns = json.loads(listed.read_text(encoding="utf-8"))["columns"]
        self._types: dict[str, tf.DType] = {c["name"]: tf.as_dtype(c["dtype"]) for c in columns}

    def check_columns(self, header: list[str], source: str) -> None:
        """Refuses a file that lacks a column that the model reads."""
        lacking = sorted(set(self._types) - set(header))
        if lacking:
            raise ConfigError(
                f"--input={source}: lacks the columns {', '.join(lacking)}, which the model reads. "
                "Add them; leave a cell empty where the value is missing."
            )

    def __call__(self, rows: list[tuple[int, dict[str, str]]]) -> dict[str, np.ndarray]:
        """Predictions of numbered rows: output name -> [rows] or [rows, k]."""
        import numpy as np
        import tensorflow as tf

        examples = tf.constant([self._example(number, row) for number, row in rows])
        outputs = self._serve(examples=examples)
        flat = {name: np.asarray(value) for name, value in outputs.items()}
        return {name: v[:, 0] if v.ndim == 2 and v.shape[1] == 1 else v for name, v in flat.items()}

    def _example(self, number: int, row: dict[str, str]) -> bytes:
        import tensorflow as tf

        example = tf.train.Example()
        for name, dtype in self._types.items():
            cell = row.get(name) or ""
            if not cell:
                continue
            feature = example.features.feature[name]
            try:
                if dtype == tf.string:
                    feature.bytes_list.value.append(cell.encode())
                elif dtype.is_integer:
                    feature.int64_list.value.append(int(cell))
                else:
                    feature.float_list.value.append(float(cell))
            except ValueError:
                kind = "an integer" if dtype.is_integer else "a number"
                raise ConfigError(
                    f"--input, line {number}: {name}={cell!r} is not {kind}, "
                    f"which the model {self._path} expects there."
                ) from None
        return example.SerializeToString()


def _batches(reader: csv.DictReader) -> Iterator[list[tuple[int, dict[str, str]]]]:
    batch = []
    for row in reader:
        batch.append((reader.line_num, row))
        if len(batch) == BATCH_ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


def _columns(predictions: dict[str, np.ndarray]) -> list[tuple[str, Any]]:
    """Predictions as columns with a name each: `name` or `name_0`, `name_1`, ..."""
    columns = []
    for name, values in predictions.items():
        if values.ndim == 1:
            columns.append((name, values))
        else:
            flat = values.reshape(len(values), -1)
            columns += [(f"{name}_{i}", flat[:, i]) for i in range(flat.shape[1])]
    return columns


def _write(
    predictor: Predictor,
    header: list[str],
    first: list[tuple[int, dict[str, str]]],
    rest: Iterator[list[tuple[int, dict[str, str]]]],
    output: Path,
) -> int:
    from itertools import chain

    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn

    rows = 0
    try:
        with (
            whole_file(output, newline="") as stream,
            Progress(
                SpinnerColumn(),
                TextColumn("{task.completed:,.0f} rows predicted"),
                console=Console(stderr=True),
                transient=True,
            ) as progress,
        ):
            task = progress.add_task("predict", total=None)
            writer = csv.writer(stream)
            for batch in chain([first], rest):
                columns = _columns(predictor(batch))
                if rows == 0:
                    writer.writerow([*header, *(name for name, _ in columns)])
                for i, (_, row) in enumerate(batch):
                    cells = [row[name] for name in header]
                    writer.writerow([*cells, *(values[i] for _, values in columns)])
                rows += len(batch)
                progress.update(task, completed=rows)
    except OSError as error:
        raise ConfigError(f"--output={output}: cannot write it ({error.strerror}).") from None
    return rows


def _show(predictor: Predictor, rows: list[tuple[int, dict[str, str]]], *, more: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    columns = _columns(predictor(rows))
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("line", justify="right")
    for name, _ in columns:
        table.add_column(name, justify="right")
    for i, (number, _) in enumerate(rows):
        table.add_row(str(number), *(_text(values[i]) for _, values in columns))
    Console().print(table)
    if more:
        print("(the first rows; --output predictions.csv writes all)", file=sys.stdout)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else f"{value:.4f}"
