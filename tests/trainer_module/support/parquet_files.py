"""Parquet files as Transform writes them, from arrays or from TFRecord files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf


def lists(values: np.ndarray) -> pa.Array:
    """Return a large list for each row of `[rows, ...]`."""
    offsets = np.arange(len(values) + 1) * math.prod(values.shape[1:])
    kind = pa.large_binary() if values.dtype == object else None
    return pa.LargeListArray.from_arrays(offsets, pa.array(values.ravel(), kind))


def write_parquet(
    path: Path, columns: Mapping[str, np.ndarray | pa.Array], *, group_rows: int = 1000, **options
) -> str:
    """Write columns; arrays of NumPy become lists."""
    table = {n: lists(c) if isinstance(c, np.ndarray) else c for n, c in columns.items()}
    pq.write_table(pa.table(table), path, row_group_size=group_rows, **options)
    return str(path)


def from_tfrecords(
    pattern: str, spec: Mapping[str, tf.io.FixedLenFeature], folder: Path, *, group_rows: int
) -> str:
    """Write a Parquet file for each gzip-compressed TFRecord file; return their pattern."""
    folder.mkdir(parents=True)
    for file in sorted(tf.io.gfile.glob(pattern)):
        records = list(tf.data.TFRecordDataset(file, "GZIP").as_numpy_iterator())
        features = tf.io.parse_example(records, dict(spec))
        path = folder / Path(file).with_suffix(".parquet").name
        write_parquet(path, {n: v.numpy() for n, v in features.items()}, group_rows=group_rows)
    return str(folder / "*")
