"""Arrow IPC files (Feather V2), seen as Parquet files are: a record batch is a row group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

MAGIC = b"ARROW1"
"""What such a file begins with; one of the streaming format does not."""


class _Column(NamedTuple):
    path_in_schema: str
    is_stats_set: bool = False  # IPC files hold no statistics
    statistics: Any = None


class _RowGroup:
    def __init__(self, batch: pa.RecordBatch):
        self._names = batch.schema.names
        self.num_columns, self.num_rows = batch.num_columns, batch.num_rows
        self.total_byte_size = batch.nbytes

    def column(self, place: int) -> _Column:
        return _Column(self._names[place])


class _Metadata:
    def __init__(self, reader: pa.ipc.RecordBatchFileReader, rows: int):
        self._reader, self.num_rows = reader, rows

    def row_group(self, number: int) -> _RowGroup:
        return _RowGroup(self._reader.get_batch(number))


class ArrowFile:
    """What `parquet.py` uses of a pyarrow.parquet.ParquetFile, of an Arrow IPC file."""

    def __init__(self, stream: BinaryIO):
        """Open a file.

        Args:
            stream: a binary file that can be sought.

        Raises:
            pa.ArrowInvalid: it is not an Arrow IPC file.
        """
        self._reader = pa.ipc.open_file(stream)
        self.schema_arrow: pa.Schema = self._reader.schema
        self.num_row_groups: int = self._reader.num_record_batches

    @cached_property
    def metadata(self) -> _Metadata:
        """The number of rows, which only the batches have."""
        rows = sum(self._reader.get_batch(i).num_rows for i in range(self.num_row_groups))
        return _Metadata(self._reader, rows)

    def iter_batches(
        self, batch_size: int, *, row_groups: Sequence[int], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield some columns of record batches, in pieces."""
        places = [self.schema_arrow.get_field_index(name) for name in columns]
        for number in row_groups:
            read = self._reader.get_batch(number)
            batch = pa.RecordBatch.from_arrays([read[i] for i in places], list(columns))
            for start in range(0, batch.num_rows, batch_size):
                yield batch.slice(start, batch_size)
