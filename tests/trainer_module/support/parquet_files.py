"""Parquet files as Transform writes them, from arrays or from its TFRecord files."""

from __future__ import annotations

import math
import types
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


def as_parquet(
    made: types.SimpleNamespace, folder: Path, *, group_rows: int = 70
) -> types.SimpleNamespace:
    """Return the result of `run_transform` with its rows in Parquet files below a folder."""
    import tensorflow_transform as tft

    spec = tft.TFTransformOutput(made.graph).transformed_feature_spec()
    dense = {n: f for n, f in spec.items() if isinstance(f, tf.io.FixedLenFeature)}
    for split in ("train", "eval"):
        (folder / split).mkdir(parents=True)
        for file in sorted(tf.io.gfile.glob(getattr(made, split))):
            records = list(tf.data.TFRecordDataset(file, "GZIP").as_numpy_iterator())
            features = tf.io.parse_example(records, dense)
            write_parquet(
                folder / split / Path(file).with_suffix(".parquet").name,
                {name: values.numpy() for name, values in features.items()},
                group_rows=group_rows,
            )
    return types.SimpleNamespace(
        graph=made.graph,
        raw=made.raw,
        train=str(folder / "train" / "examples*"),
        eval=str(folder / "eval" / "examples*"),
    )
