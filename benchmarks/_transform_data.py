"""Examples as an ExampleGen writes them, made once and kept in output/benchmarks/transform."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "output" / "benchmarks" / "transform"
_CHUNK_ROWS = 10_000


def names(columns: int) -> list[str]:
    """c0000, c0001, ...: in order of their names too."""
    return [f"c{i:04d}" for i in range(columns)]


def numbers(
    rows: int, columns: int, *, optional: bool = False, holes: float = 0.0, copies: int = 1
) -> str:
    """Float columns, normal, each with its own mean and spread.

    Args:
        rows: In one file.
        columns: Number of columns.
        optional: The schema promises no value: TFT hands over SparseTensors.
        holes: Share of missing values; above 0, the columns are optional.
        copies: Links to the file, so that there are `copies * rows` rows to read.

    Returns:
        The folder: Split-train/*.gz, schema/schema.pbtxt.
    """
    optional = optional or holes > 0
    kind = f"numbers-{rows}x{columns}x{copies}{'-optional' * optional}-{holes}"

    def make(folder: Path) -> None:
        arrays = number_chunks(rows, columns, holes)
        _write_examples(folder, names(columns), map(_number_lists, arrays), copies)
        _write_schema(folder, names(columns), "FLOAT", optional=optional)

    return _made(kind, make)


def parquet(rows: int, columns: int) -> str:
    """The rows of `numbers`, as a Parquet file; returns its path."""

    def make(folder: Path) -> None:
        import pyarrow.parquet as pq

        writer = None
        for chunk in number_chunks(rows, columns, 0.0):
            table = pa.table(dict(zip(names(columns), np.ascontiguousarray(chunk.T), strict=True)))
            writer = writer or pq.ParquetWriter(folder / "data.parquet", table.schema)
            writer.write_table(table)
        assert writer is not None
        writer.close()

    return f"{_made(f'parquet-{rows}x{columns}', make)}/data.parquet"


def parquet_examples(rows: int, columns: int) -> str:
    """The rows of `numbers` as ArrowExampleGen writes them; returns the folder as `numbers`."""

    def make(folder: Path) -> None:
        import pyarrow.parquet as pq

        (folder / "Split-train").mkdir()
        writer = None
        for chunk in number_chunks(rows, columns, 0.0):
            table = pa.table(dict(zip(names(columns), _number_lists(chunk), strict=True)))
            writer = writer or pq.ParquetWriter(
                folder / "Split-train" / "data_parquet-00000-of-00001.parquet",
                table.schema,
                compression="zstd",
                use_dictionary=False,
                use_compliant_nested_type=False,
            )
            writer.write_table(table)
        assert writer is not None
        writer.close()
        _write_schema(folder, names(columns), "FLOAT", optional=False)

    return _made(f"parquet-lists-{rows}x{columns}", make)


def texts(rows: int, columns: int, *, values: int) -> str:
    """String columns of up to so many values, as frequent as words are (Zipf's law)."""

    def make(folder: Path) -> None:
        share = 1.0 / np.arange(1, values + 1)
        vocabulary = np.asarray([f"value-{i}" for i in range(values)])
        rng = np.random.default_rng(0)

        def chunks() -> Iterator[list[pa.Array]]:
            for start in range(0, rows, _CHUNK_ROWS):
                size = min(_CHUNK_ROWS, rows - start)
                ids = rng.choice(values, [columns, size], p=share / share.sum())
                yield [_lists(pa.array(vocabulary[column], pa.binary())) for column in ids]

        _write_examples(folder, names(columns), chunks(), 1)
        _write_schema(folder, names(columns), "BYTES", optional=True)

    return _made(f"texts-{rows}x{columns}-{values}", make)


def number_chunks(rows: int, columns: int, holes: float) -> Iterator[np.ndarray]:
    """float32 `[up to 10,000, columns]`, NaN for a hole; the same each time."""
    rng = np.random.default_rng(0)
    mean, spread = rng.uniform(-10, 10, columns), rng.uniform(0.1, 10, columns)
    for start in range(0, rows, _CHUNK_ROWS):
        size = min(_CHUNK_ROWS, rows - start)
        values = (mean + spread * rng.standard_normal([size, columns])).astype(np.float32)
        if holes:
            values[rng.random([size, columns]) < holes] = np.nan
        yield values


def _made(kind: str, make: Callable[[Path], None]) -> str:
    """The folder called `kind`, made where it is not there; half of one is never taken."""
    folder = FOLDER / kind
    if not folder.exists():
        unfinished = FOLDER / f"{kind}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        make(unfinished)
        unfinished.rename(folder)
    return str(folder)


def _number_lists(chunk: np.ndarray) -> list[pa.Array]:
    return [_lists(pa.array(column, from_pandas=True)) for column in np.ascontiguousarray(chunk.T)]


def _lists(column: pa.Array) -> pa.Array:
    """One list per row, empty where the value is null."""
    present = column.is_valid().to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(present)])
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), column.drop_null())


def _write_examples(
    folder: Path, columns: list[str], chunks: Iterator[list[pa.Array]], copies: int
) -> None:
    import tensorflow as tf
    from tfx_bsl.coders import example_coder

    split = folder / "Split-train"
    split.mkdir()
    first = split / f"data_tfrecord-00000-of-{copies:05d}.gz"
    encoder = example_coder.RecordBatchToExamplesEncoder()
    with tf.io.TFRecordWriter(str(first), "GZIP") as writer:
        for arrays in chunks:
            for record in encoder.encode(pa.RecordBatch.from_arrays(arrays, columns)):
                writer.write(record)
    for copy in range(1, copies):
        os.link(first, split / f"data_tfrecord-{copy:05d}-of-{copies:05d}.gz")


def _write_schema(folder: Path, columns: list[str], kind: str, *, optional: bool) -> None:
    """As SchemaGen writes it; without `optional`, as with its `infer_feature_shape=True`."""
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    schema: Any = schema_pb2.Schema()
    for name in columns:
        feature = schema.feature.add(name=name, type=schema_pb2.FeatureType.Value(kind))
        feature.presence.min_count = 1
        if optional:
            feature.value_count.max = 1
        else:
            feature.presence.min_fraction = 1.0
            feature.shape.dim.add(size=1)
    path = folder / "schema" / "schema.pbtxt"
    path.parent.mkdir()
    path.write_text(text_format.MessageToString(schema))
