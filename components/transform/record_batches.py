"""Read Parquet files as record batches of bounded size, and write transformed ones."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import tensorflow as tf
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.worker import data_plane
from apache_beam.transforms import userstate
from apache_beam.utils.shared import Shared
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform import impl_helper
from tensorflow_transform.beam import impl
from tensorflow_transform.tf_metadata import schema_utils
from tfx_bsl.tfxio.parquet_tfxio import ParquetTFXIO

from components.arrow_example_gen.write_parquet import WriteParquet, register_arrow_coders

MESSAGE_BYTES = 1 << 20
_LOADED = Shared()  # graphs of this process


def _limit_messages() -> None:
    """Make the Beam workers of this process send messages of a MiB, or of one larger element.

    Beam's own are ten times as large, and no option of Beam changes that. Up to a hundred of each
    step wait in the memory of a Java engine (Beam's BeamFnDataInboundObserver counts messages, not
    bytes), which ended in "Java heap space".
    """
    if data_plane._DEFAULT_SIZE_FLUSH_THRESHOLD != MESSAGE_BYTES:
        data_plane._DEFAULT_SIZE_FLUSH_THRESHOLD = MESSAGE_BYTES
        data_plane.SizeBasedBufferingClosableOutputStream = functools.partial(
            data_plane.SizeBasedBufferingClosableOutputStream, size_flush_threshold=MESSAGE_BYTES
        )


def _inspect_once() -> None:
    """Make Beam inspect the methods of each kind of DoFn once, not for each step several times.

    This took a fifth of the time to build and start the pipelines of StatisticsGen and Transform.
    """
    inspect, found = userstate.get_dofn_specs, weakref.WeakKeyDictionary()

    def get_dofn_specs(dofn: Any) -> Any:
        process = getattr(dofn.process, "__func__", dofn.process)  # `beam.Map` has one per step
        kinds = found.setdefault(process, {})
        if type(dofn) not in kinds:
            kinds[type(dofn)] = inspect(dofn)
        return kinds[type(dofn)]

    userstate.get_dofn_specs = get_dofn_specs


class _ApplyGraph(impl._RunMetaGraphDoFn):
    """Loads the graph of the folder that it is asked for. Workers import it by its name.

    A step keeps its graph in the worker's process, and TFT asserts that it is never asked for
    another folder's (in 1.16 and 1.21). On Flink, where a job is started again, the second attempt
    writes the graph into another folder: a busy machine on which Flink lost sight of a TaskManager
    ended in "AssertionError". TFT has a step per split; here, all of a process share the graph.
    """

    def process(self, batch: Any, saved_model_dir: str) -> Iterator[Any]:
        known = getattr(self, "_graph_state", None)
        if known is None or known.saved_model_dir != saved_model_dir:
            wanted = (sorted(self._get_input_tensor_names()), sorted(self._exclude_outputs))
            self._graph_state = _LOADED.acquire(
                lambda: self._make_graph_state(saved_model_dir), tag=(saved_model_dir, wanted)
            )
        yield from super().process(batch, saved_model_dir)


# In this module, because workers load it for the steps below.
register_arrow_coders()
_limit_messages()
_inspect_once()
impl._RunMetaGraphDoFn = _ApplyGraph

# A call of the graph costs some milliseconds, whatever the number of rows.
_BATCH_ROWS = 16_384
_BATCH_BYTES = 16 << 20
_LARGE_BYTES = 256  # of a value


def _cut(table: pa.Table, most_bytes: int = _BATCH_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield record batches of at most `BATCH_ROWS` rows, and about `most_bytes` bytes.

    Pictures become several times as large, so that those of a batch are a MiB.
    """
    for column in table.columns:
        kind = getattr(column.type, "value_type", column.type)  # of a list, its values
        is_binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
        if is_binary and column.nbytes > _LARGE_BYTES * table.num_rows:
            most_bytes = MESSAGE_BYTES
    rows = max(1, min(_BATCH_ROWS, most_bytes * table.num_rows // max(1, table.nbytes)))
    yield from table.to_batches(rows)


class BoundedParquet(ParquetTFXIO):
    """TFX's reader of Parquet, in bounded batches where TFX's have the size of a row group.

    Without TFX's telemetry, which counts the values of each list.
    """

    def BeamSource(self, batch_size: int | None = None) -> beam.PTransform:
        """Return the source of record batches."""
        return _Source(self._file_pattern, self._column_names)


class _Source(beam.PTransform):
    def __init__(self, patterns: Sequence[str], columns: Sequence[str] | None):
        super().__init__()
        self._patterns = patterns
        self._columns = columns

    def expand(self, begin: Any) -> Any:
        tables = [
            begin
            | f"Read[{place}]"
            >> beam.io.ReadFromParquetBatched(pattern, columns=self._columns).with_output_types(
                pa.Table
            )
            for place, pattern in enumerate(self._patterns)
        ]
        # Behind a job server, batches travel between stages, each as a message.
        is_behind_a_job_server = isinstance(begin.pipeline.runner, PortableRunner)
        most_bytes = MESSAGE_BYTES if is_behind_a_job_server else _BATCH_BYTES
        return (
            tables
            | beam.Flatten()
            | "Cut" >> beam.FlatMap(_cut, most_bytes).with_output_types(pa.RecordBatch)
        )


class WriteTransformed(beam.PTransform):
    """Write transformed record batches to Parquet files with the columns of their schema.

    The files are readable by TFXIO, and by whatever reads Parquet.
    """

    def __init__(self, schema: schema_pb2.Schema, path: str):
        """Write rows of a schema to files whose paths begin with `path`."""
        super().__init__()
        self._columns = _StoredColumns(schema)
        self._path = path

    def expand(self, batches: Any) -> Any:
        """Write pairs of a record batch and TFT's pass-through columns, which are left out."""
        return (
            batches
            | "RecordBatches" >> beam.Keys()
            | "Columns" >> beam.Map(self._columns).with_output_types(pa.RecordBatch)
            | "Files"
            >> WriteParquet(self._path, schema=self._columns.arrow_schema(), compression="snappy")
        )


class _StoredColumns:
    """Converts record batches of TFT to the columns of the transformed schema, in its order.

    TFT's batches have one column per tensor. The schema describes a ragged tensor as TFT stores it
    in tf.Examples: by its values and the lengths of its inner rows.
    """

    def __init__(self, schema: schema_pb2.Schema):
        self._names = [feature.name for feature in schema.feature]
        specs = schema_utils.schema_as_feature_spec(schema).feature_spec
        length = tf.io.RaggedFeature.RowLengths
        self._ragged = {
            name: (
                spec.value_key,
                [part.key for part in spec.partitions if isinstance(part, length)],
            )
            for name, spec in specs.items()
            if isinstance(spec, tf.io.RaggedFeature)
        }
        self._tensors = impl_helper.make_tensor_to_arrow_converter(schema).arrow_schema()

    def arrow_schema(self) -> pa.Schema:
        """Return the schema of the converted batches."""
        return self(pa.RecordBatch.from_pylist([], self._tensors)).schema

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the schema's columns; nothing but their lists' bounds is copied."""
        columns: dict[str, pa.Array] = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            values, lengths = self._ragged.get(name, (name, ()))
            for key in lengths:
                inner, bounds = column.values, column.offsets
                columns[key] = pa.LargeListArray.from_arrays(
                    bounds, pa.array(np.diff(inner.offsets), pa.int64())
                )
                column = pa.LargeListArray.from_arrays(inner.offsets.take(bounds), inner.values)
            columns[values] = column
        return pa.RecordBatch.from_arrays([columns[name] for name in self._names], self._names)
