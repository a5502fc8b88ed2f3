"""Read a sample of the data before anything runs: columns, types and rows.

It reads a limited number of rows (of Parquet, the footers, and then the requested columns), so that
a missing or empty file, or a column that the features name and the data lacks, is detected before
Beam starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from components import CsvOptions
from pipeline.common.errors import ConfigError
from pipeline.config.config import DataConfig, is_remote
from pipeline.data.data_sources import column_folders, files
from pipeline.data.samples import CsvSample, ParquetSample, Sample, Subset, TfrecordSample
from pipeline.data.tables import (
    ColumnType,
    CsvBlock,
    csv_blocks,
    kinds_of,
    open_csv,
    open_parquet,
    tfrecord_blocks,
)

if TYPE_CHECKING:
    from tensorflow_metadata.proto.v0 import schema_pb2


PEEKED_ROWS = 100_000
"""Rows that `peek` reads to learn the columns' types."""

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
        kept = np.flatnonzero(present)
        if not len(kept):
            raise ConfigError(f"data: column {column!r} has no value in any row; use another.")
        dropped = len(present) - len(kept)
        return replace(self, rows=self.rows - dropped, sample=Subset(self.sample, kept))

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
                widths = self.sample.widths(name)
                if len(widths) and widths.max() > 1:
                    feature.value_count.min = int(widths.min())
                    feature.value_count.max = int(widths.max())
        return schema


def peek(
    data: DataConfig,
    field: Literal["path", "eval_path"] = "path",
    *,
    label: str | None = None,
) -> DataPeek | None:
    """Read the first rows of the data.

    Args:
        data: The `data:` section.
        field: The path to read.
        label: Name of the path in messages; None: its field in the YAML.

    Returns:
        The result, or None for data on a remote file system.

    Raises:
        ConfigError: The file does not exist, is empty, has no row, or has another format.
    """
    path = getattr(data, field)
    if is_remote(path):
        return None
    label = label or f"data.{field}"
    found = files(path, label, source=data.source, spans=data.spans)
    try:
        if data.source == "csv":
            result = _peek_csv(found, data.csv)
        elif data.source == "tfrecord":
            result = _peek_tfrecord(found)
        else:
            result = _peek_parquet(
                found, column_folders(path, label, source=data.source, spans=data.spans)
            )
    except ConfigError as error:
        raise ConfigError(f"{label}: {error}") from None
    if result.rows == 0:
        raise ConfigError(
            f"{label}={path}: no rows"
            + (" below the header line." if data.source == "csv" else ".")
            + " A pipeline needs rows to train on."
        )
    return result


def _peek_csv(found: list[Path], options: CsvOptions) -> DataPeek:
    from components.arrow_example_gen import csv_types
    from components.arrow_example_gen.csv_types import CellCounts

    table = open_csv(found, options)
    _check_names(options, table.columns)
    counts: list[csv_types.Counts] = [dict.fromkeys(table.columns, CellCounts())]
    blocks: list[CsvBlock] = []
    rows, size, complete = 0, 0, True
    for start, cells in csv_blocks(table):
        if rows == PEEKED_ROWS or size > _PEEKED_BYTES:
            complete = False
            break
        complete = cells.num_rows <= PEEKED_ROWS - rows
        kept = cells.slice(0, PEEKED_ROWS - rows)
        counts.append(table.count(kept))
        blocks.append(CsvBlock(start, kept))
        rows, size = rows + kept.num_rows, size + kept.nbytes
        if not complete:
            break
    try:
        types = table.types(csv_types.together(counts))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    columns: dict[str, ColumnType] = {name: kind or "unknown" for name, kind in types.kinds.items()}
    return DataPeek(columns, rows, complete, sample=CsvSample(blocks, types, rows))


def _check_names(options: CsvOptions, columns: Sequence[str]) -> None:
    """Raise if options name a column that the data lack, because they would have no effect."""
    from shared_core.nearest import nearest_column

    for key in ("text", "missing_in", "formatted"):
        for name in getattr(options, key):
            if name not in columns:
                raise ConfigError(
                    f"data.csv.{key} names {name!r}, which is not in the data; "
                    f"{nearest_column(name, columns)}"
                )


def _peek_parquet(found: list[Path], folders: list[str]) -> DataPeek:
    table = open_parquet(found, folders)
    columns: dict[str, ColumnType] = {
        name: "unknown" if kind is None or name in table.empty else kind
        for name, kind in table.columns.items()
    }
    sample = ParquetSample(table, PEEKED_ROWS)
    return DataPeek(columns, table.rows, True, table.lists, table.left_out, sample)


def _peek_tfrecord(found: list[Path]) -> DataPeek:
    features: list[Any] = []
    blocks: list[Any] = []
    rows, size, complete = 0, 0, True
    for block, seen in tfrecord_blocks(found):
        if rows >= PEEKED_ROWS or size > _PEEKED_BYTES:
            complete = False
            break
        blocks.append(block)
        features.append(seen)
        rows, size = rows + block.rows, size + block.batch.nbytes
    if not blocks:
        return DataPeek({}, 0, True)
    kinds = kinds_of(features)
    columns: dict[str, ColumnType] = {name: kind or "unknown" for name, kind in kinds.items()}
    several = {name for seen in features for name, each in seen.items() if each.several}
    sample = TfrecordSample(blocks, kinds)
    return DataPeek(columns, rows, complete, frozenset(several), sample=sample)
