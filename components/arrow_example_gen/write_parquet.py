"""Record batches as Parquet files."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.filebasedsink import FileBasedSink
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import AsIter
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

from trainer_module.common.progress import RowCounter

_GROUP_ROWS = 2**16
_GROUP_BYTES = 2**23
"""Rows, and bytes in Arrow, of a row group: TFXIO reads one at a time, with a fixed cost each, and
images take several times as much when they are decoded."""


class WriteParquet(beam.PTransform):
    """Record batches of one schema -> Parquet files, at least one.

    `beam.io.Write` does the same, with a side input for the step that writes. On Flink and Spark a
    step with a side input starts a new stage, and what it reads travels there through Java, which
    runs out of memory: Beam sends 100 messages from there before it looks whether they are taken,
    whatever their size, and a row group is one message.
    """

    def __init__(
        self,
        prefix: str,
        *,
        schema: pa.Schema | None = None,
        compression: str = "zstd",
        shuffles: bool = False,
        encoded: Sequence[str] = (),
    ):
        """Write to files whose paths begin with `prefix`, in place of those that are there.

        Args:
            prefix: On any file system that Beam knows.
            schema: Of the batches; needed if there may be none.
            compression: A codec of Parquet.
            shuffles: Whether the rows of a row group get a random order, the same in each run, so
                that who reads several groups in turn mixes rows that are sorted in the files.
            encoded: Columns of encoded images, which are compressed already.
        """
        super().__init__()
        self._sink = _ParquetFiles(prefix, schema, compression, encoded)
        self._prefix = prefix
        self._row_groups = _RowGroups(shuffles=shuffles)

    def expand(self, batches: Any) -> Any:
        """Write a file per bundle, so that no row crosses the network or waits in memory."""
        matches = FileSystems.match([f"{self._prefix}*"])
        old = [file.path for match in matches for file in match.metadata_list]
        if old:  # of an attempt that was cut off: their rows would be counted again
            FileSystems.delete(old)
        folder = self._sink.initialize_write()
        files = (
            batches
            | "RowGroups" >> beam.ParDo(self._row_groups).with_output_types(pa.Table)
            | "Write" >> beam.ParDo(_WriteFile(self._sink, folder))
        )
        return (
            batches.pipeline
            | "Once" >> beam.Create([None], reshuffle=False)
            | "Rename" >> beam.FlatMap(_renamed, self._sink, folder, AsIter(files))
        )


class _RowGroups(beam.DoFn):
    """Joins batches up to the size of a row group; a bundle without a row yields an empty table."""

    def __init__(self, *, shuffles: bool = False):
        super().__init__()
        self._shuffles = shuffles
        self._counter = RowCounter()

    def start_bundle(self) -> None:
        self._held: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._written = False

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        if self._rows and (
            self._rows + batch.num_rows > _GROUP_ROWS or self._bytes + batch.nbytes > _GROUP_BYTES
        ):
            yield self._joined()
        if batch.num_rows or not self._held:
            self._held.append(batch)
            self._rows += batch.num_rows
            self._bytes += batch.nbytes
        self._counter.add(batch.num_rows)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._rows or (self._held and not self._written):
            yield _in_the_global_window(self._joined())

    def _joined(self) -> pa.Table:
        table = pa.Table.from_batches(self._held)
        if self._shuffles:
            table = table.take(pa.array(np.random.default_rng(0).permutation(table.num_rows)))
        self._held, self._rows, self._bytes, self._written = [], 0, 0, True
        return table


class _WriteFile(beam.DoFn):
    """Writes the tables of a bundle to a file in a folder; yields its path."""

    def __init__(self, sink: _ParquetFiles, folder: str):
        super().__init__()
        self._sink, self._folder = sink, folder

    def start_bundle(self) -> None:
        self._writer: Any = None

    def process(self, table: pa.Table) -> None:
        self._writer = self._writer or self._sink.new_file(self._folder, table.schema)
        self._writer.write(table)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._writer is not None:
            yield _in_the_global_window(self._writer.close())


def _renamed(_: None, sink: _ParquetFiles, folder: str, files: Iterable[str]) -> list[str]:
    """Give complete files their names, and delete the folder; also if an attempt did so in part."""
    files = list(files) or [sink.new_file(folder).close()]
    return list(sink.finalize_write(folder, files, None))


def _in_the_global_window(value: Any) -> WindowedValue:
    return WindowedValue(value, MIN_TIMESTAMP, (GlobalWindow(),))


class _ParquetFiles(FileBasedSink):
    """Writes tables to Parquet files; without a schema, the first table says the columns."""

    def __init__(
        self, prefix: str, schema: pa.Schema | None, compression: str, encoded: Sequence[str]
    ):
        super().__init__(
            prefix,
            coder=None,
            file_name_suffix=".parquet",
            mime_type="application/x-parquet",
            compression_type=CompressionTypes.UNCOMPRESSED,
        )
        self._schema: Any = schema
        self._compression, self._encoded = compression, encoded

    def new_file(self, folder: str, schema: pa.Schema | None = None) -> Any:
        self._schema = self._schema or schema
        if self._schema is None:
            raise ValueError(
                f"Nothing to write to {self.file_path_prefix.get()}*: no rows were read. Is the "
                "input empty?"
            )
        return self.open_writer(folder, uuid.uuid4().hex)

    def open(self, temp_path: str) -> tuple[pq.ParquetWriter, Any]:
        stream = super().open(temp_path)
        # Of floats, dictionaries take more time and space.
        stored = [
            field.name
            for field in self._schema
            if not pa.types.is_floating(field.type.value_type) and field.name not in self._encoded
        ]
        writer = pq.ParquetWriter(
            stream,
            self._schema,
            compression={
                f"{name}.list.item": "none" if name in self._encoded else self._compression
                for name in self._schema.names
            }
            if self._encoded
            else self._compression,
            use_dictionary=[f"{name}.list.item" for name in stored],
            # TFXIO compares types by the name of a list's field, too.
            use_compliant_nested_type=False,
        )
        return writer, stream

    def write_record(self, file_handle: tuple[pq.ParquetWriter, Any], value: pa.Table) -> None:
        if value.num_rows:
            file_handle[0].write_table(value, row_group_size=value.num_rows)

    def close(self, file_handle: tuple[pq.ParquetWriter, Any]) -> None:
        for each in file_handle:
            each.close()


class ArrowCoder(beam.coders.Coder):
    """Codes record batches or tables as a stream of Arrow's IPC format, and shows Beam their size.

    Beam estimates the size of the first ten elements that a step gets, by default by encoding them.
    Here a step gets few elements, of some megabytes, so each step encoded nearly all rows.
    """

    def __init__(self, kind: type):
        self._kind = kind

    @classmethod
    def from_type_hint(cls, typehint: type, registry: Any) -> ArrowCoder:
        """Return the coder of a type."""
        return cls(typehint)

    def to_type_hint(self) -> type:
        """Return the type of the elements."""
        return self._kind

    def encode(self, value: pa.RecordBatch | pa.Table) -> bytes:
        """Return the stream of a record batch or a table."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write(value)
        return sink.getvalue().to_pybytes()

    def decode(self, encoded: bytes) -> pa.RecordBatch | pa.Table:
        """Return the record batch or the table of a stream."""
        reader = pa.ipc.open_stream(encoded)
        return reader.read_all() if self._kind is pa.Table else reader.read_next_batch()

    def estimate_size(self, value: pa.RecordBatch | pa.Table) -> int:
        """Return the bytes of the values."""
        return value.nbytes


def register_arrow_coders() -> None:
    """Make Beam use this coder in the pipelines of this process, where a step has such a type."""
    # Not at the top: workers of ArrowExampleGen import this module, and need no TensorFlow.
    import tensorflow_data_validation  # noqa: F401  registers another coder when it is imported

    for kind in (pa.RecordBatch, pa.Table):
        beam.coders.registry.register_coder(kind, ArrowCoder)
