"""Record batches as the Parquet files of a split."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.filebasedsink import FileBasedSink
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

from trainer_module.common.progress import RowCounter

GROUP_ROWS = 2**16
GROUP_BYTES = 2**26
"""Rows, and bytes in Arrow, of a row group: TFXIO reads one at a time, with a fixed cost each."""

_NAME = "data_parquet"  # as TFX's WriteSplit names such files


class WriteParquet(beam.PTransform):
    """Record batches of one schema -> Parquet files in a folder, at least one."""

    def __init__(self, folder: str):
        """Write to a folder on any file system that Beam knows."""
        super().__init__()
        self._folder = folder

    def expand(self, batches: Any) -> Any:
        """Write a file per bundle, so that no row crosses the network or waits in memory."""
        return (
            batches
            | "RowGroups" >> beam.ParDo(RowGroups(shuffles=True)).with_output_types(pa.Table)
            | "Write" >> beam.io.Write(_ParquetFiles(os.path.join(self._folder, _NAME)))
        )


class RowGroups(beam.DoFn):
    """Joins batches up to the size of a row group; a bundle without a row yields an empty table."""

    def __init__(self, *, shuffles: bool = False):
        """Join batches.

        Args:
            shuffles: Whether the rows of a group get a random order, the same in each run. Who
                reads several groups in turn then gets a mixture of their rows, even if the rows of
                the files are sorted.
        """
        super().__init__()
        self._shuffles = shuffles
        self._counter = RowCounter()

    def start_bundle(self) -> None:
        """Start without batches."""
        self._held: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._written = False

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        """Hold a batch; yield those that are held if they would be too many with it."""
        if self._rows and (
            self._rows + batch.num_rows > GROUP_ROWS or self._bytes + batch.nbytes > GROUP_BYTES
        ):
            yield self._joined()
        if batch.num_rows or not self._held:
            self._held.append(batch)
            self._rows += batch.num_rows
            self._bytes += batch.nbytes
        self._counter.add(batch.num_rows)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Yield the rest."""
        if self._rows or (self._held and not self._written):
            yield WindowedValue(self._joined(), MIN_TIMESTAMP, (GlobalWindow(),))

    def _joined(self) -> pa.Table:
        table = pa.Table.from_batches(self._held)
        if self._shuffles:
            table = table.take(pa.array(np.random.default_rng(0).permutation(table.num_rows)))
        self._held, self._rows, self._bytes, self._written = [], 0, 0, True
        return table


class _ParquetFiles(FileBasedSink):
    def __init__(self, prefix: str):
        super().__init__(
            prefix,
            coder=None,
            file_name_suffix=".parquet",
            mime_type="application/x-parquet",
            compression_type=CompressionTypes.UNCOMPRESSED,
        )

    def open(self, temp_path: str) -> _File:
        return _File(super().open(temp_path))

    def write_record(self, file_handle: _File, value: pa.Table) -> None:
        file_handle.write(value)

    def close(self, file_handle: _File) -> None:
        file_handle.close()


class _File:
    """A Parquet file whose first table says its columns."""

    def __init__(self, stream: Any):
        self._stream = stream
        self._writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        writer = self._writer or pq.ParquetWriter(
            self._stream,
            table.schema,
            compression="zstd",
            use_dictionary=_repeated(table.schema),
            # TFXIO compares types by the name of a list's field, too.
            use_compliant_nested_type=False,
        )
        self._writer = writer
        if table.num_rows:
            writer.write_table(table, row_group_size=table.num_rows)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._stream.close()


def _repeated(schema: pa.Schema) -> list[str]:
    """Return the columns to store as dictionaries: of floats, these take more time and space."""
    return [f"{field.name}.list.item" for field in schema if not _has_floats(field)]


def _has_floats(field: pa.Field) -> bool:
    return pa.types.is_floating(field.type.value_type)
