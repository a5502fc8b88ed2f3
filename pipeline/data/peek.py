"""Read a sample of the data before anything runs: columns, types and rows.

It reads a limited number of rows (of Parquet, the footers, and then the requested columns), so that
a missing or empty file, or a column that the features name and the data lacks, is detected before
Beam starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from components import CsvOptions
from components.arrow_example_gen.columns import Table
from components.arrow_example_gen.csv_table import CsvTable
from components.arrow_example_gen.images import KINDS
from components.arrow_example_gen.parquet import ParquetTable
from pipeline.common.errors import ConfigError
from pipeline.common.sources import COLUMNAR
from pipeline.config.config import DataConfig, is_remote
from pipeline.data.data_sources import column_folders, files
from pipeline.data.samples import Sample
from pipeline.data.tables import (
    ColumnType,
    all_blocks,
    check_features,
    config_errors,
    open_table,
)

if TYPE_CHECKING:
    from tensorflow_metadata.proto.v0 import schema_pb2


_PEEKED_ROWS = 100_000
"""Rows that `peek` reads to learn the columns' types."""

_CHECKED_FILES = 1_000
"""Files of `data.files` whose existence `peek` checks."""

_PEEKED_BYTES = 2**28
"""And bytes of them, which it keeps."""


@dataclass(frozen=True)
class DataPeek:
    """The result of reading the first rows of the data.

    Attributes:
        columns: Name -> type, "unknown" if no row that was read has a value.
        rows: Number of rows that were read; of Parquet, all.
        complete: Whether all data was read.
        lists: The columns that may have several values in a row.
        left_out: Name -> type of the columns that a tf.Example cannot hold.
        sample: The rows that were read, or the first of them.
    """

    columns: Mapping[str, ColumnType]
    rows: int
    complete: bool
    lists: frozenset[str] = frozenset()
    left_out: Mapping[str, str] = field(default_factory=dict)
    sample: Sample | None = field(default=None, compare=False)

    def having(self, column: str) -> DataPeek:
        """Return the same data without the rows that have no value in a column.

        Raises:
            ConfigError: No row has a value.
        """
        if self.sample is None:
            return self
        present = self.sample.values(column).present
        if not present.any():
            raise ConfigError(f"data: column {column!r} has no value in any row; use another.")
        sample = self.sample.subset(np.flatnonzero(present))
        return replace(self, rows=self.rows - int((~present).sum()), sample=sample)

    def schema(self) -> schema_pb2.Schema:
        """Return the columns with values as a TFDV schema, for `check_spec`."""
        from tensorflow_metadata.proto.v0 import schema_pb2

        types = {"int": schema_pb2.INT, "float": schema_pb2.FLOAT, "string": schema_pb2.BYTES}
        schema = schema_pb2.Schema()
        for name, kind in self.columns.items():
            if kind == "unknown":
                continue
            feature = schema.feature.add(name=name, type=types[kind])
            if name in self.lists and self.sample is not None:
                widths = np.diff(self.sample.values(name).offsets)
                if len(widths) and widths.max() > 1:
                    feature.value_count.min = int(widths.min())
                    feature.value_count.max = int(widths.max())
        return schema


def peek(data: DataConfig, field: Literal["path", "eval_path"] = "path") -> DataPeek | None:
    """Read the first rows of a path of the data; None for data on a remote file system.

    Raises:
        ConfigError: The file does not exist, is empty, has no row, or has another format.
    """
    path = getattr(data, field)
    if is_remote(path):
        return None
    label = f"data.{field}"
    found = files(path, label, source=data.source, spans=data.spans)
    try:
        if data.source in COLUMNAR:
            folders = column_folders(path, label, source=data.source, spans=data.spans)
            table = open_table(found, data.source, folders=folders)
            result = _read_footers(cast(ParquetTable, table))
        elif data.source == "images":
            result = _list_images(open_table(found, data.source))
        else:
            table = open_table(found, data.source, data.csv)
            if data.source == "csv":
                _check_names(data.csv, cast(CsvTable, table).columns)
            result = _read_first(table)
        if data.files:
            result = _with_files(result, data.files, found[0])
    except ConfigError as error:
        raise ConfigError(f"{label}: {error}") from None
    if result.rows == 0:
        raise ConfigError(
            f"{label}={path}: no rows"
            + (" below the header line." if data.source == "csv" else ".")
            + " A pipeline needs rows to train on."
        )
    return result


def _read_first(table: Table) -> DataPeek:
    """Read the first rows, which decide the types."""
    counts, blocks = [table.together([])], list[Any]()
    rows, size, complete = 0, 0, True
    for block in all_blocks(table):
        left = 0 if size > _PEEKED_BYTES else _PEEKED_ROWS - rows
        complete = len(block.places) <= left
        if left:
            blocks.append(block if complete else block.take(np.arange(left)))
            counts.append(table.count(blocks[-1]))
            rows, size = rows + len(blocks[-1].places), size + blocks[-1].cells.nbytes
        if not complete:
            break
    if not rows:
        return DataPeek({}, 0, True)
    with config_errors():
        types = table.types(table.together(counts))
    check_features(types.kinds)
    sample = Sample(table, types.kinds, types, rows, blocks)
    columns: dict[str, ColumnType] = {name: kind or "unknown" for name, kind in types.kinds.items()}
    return DataPeek(columns, rows, complete, getattr(types, "several", frozenset()), sample=sample)


def _check_names(options: CsvOptions, columns: Sequence[str]) -> None:
    """Raise if options name a column that the data lack, because they would have no effect."""
    from shared_core.nearest import nearest_column

    for key in ("text", "missing_in"):
        for name in getattr(options, key):
            if name not in columns:
                raise ConfigError(
                    f"data.csv.{key} names {name!r}, which is not in the data; "
                    f"{nearest_column(name, columns)}"
                )


def _list_images(table: Table) -> DataPeek:
    rows = sum(table.examine(part)[0] for file in table.files for part in table.parts(file))
    sample = Sample(table, KINDS, None, rows)  # all names: sorted, the first are of one class
    return DataPeek(cast("Mapping[str, ColumnType]", KINDS), rows, True, sample=sample)


def _with_files(result: DataPeek, columns: Mapping[str, str], file: Path) -> DataPeek:
    """Add the columns of `data.files`, and check that the first paths name files."""
    from shared_core.nearest import nearest_column

    for name, column in columns.items():
        what = f"data.files={dict(columns)}"
        if name in result.columns:
            raise ConfigError(f"{what}: the data have a column {name!r}; choose another name")
        if result.columns.get(column) != "string":
            fix = nearest_column(column, [n for n, k in result.columns.items() if k == "string"])
            raise ConfigError(f"{what}: column {column!r} is no column of texts; {fix}")
        assert result.sample is not None
        for path in result.sample.texts(column)[:_CHECKED_FILES]:
            there = file.parent / path.decode(errors="replace")
            if "://" not in str(there) and not there.is_file():
                raise ConfigError(
                    f"{what}: column {column!r} names {path.decode(errors='replace')}, and "
                    f"{there} is no file. Paths are relative to the folder of the table."
                )
    return replace(result, columns={**result.columns, **dict.fromkeys(columns, "string")})


def _read_footers(table: ParquetTable) -> DataPeek:
    columns: dict[str, ColumnType] = {
        name: "unknown" if kind is None or name in table.empty else kind
        for name, kind in table.columns.items()
    }
    sample = Sample(table, table.columns, None, min(_PEEKED_ROWS, table.rows))
    return DataPeek(columns, table.rows, True, table.lists, table.left_out, sample)
