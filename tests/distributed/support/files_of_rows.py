"""Files with distinct rows: an id, some features, a label of two classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf
from parquet_files import write_parquet

from trainer_module.data.input_pipeline import Examples

WIDTH = 4


def write(folder: Path, *, files: int, rows: int) -> Path:
    """Write the rows in turn to `files` Parquet files, which differ in length."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(rows)
    x = random.normal(size=(rows, WIDTH)).astype("float32")
    columns = {
        "id": np.arange(rows)[:, None],
        "x": x,
        "y": (x.sum(axis=1, keepdims=True) > 0.3).astype("float32"),
    }
    for number in range(files):
        write_parquet(
            folder / f"rows-{number}.parquet",
            {name: values[number::files] for name, values in columns.items()},
            group_rows=15,
        )
    return folder


def examples(folder: Path) -> Examples:
    spec = {
        "id": tf.io.FixedLenFeature([], tf.int64),
        "x": tf.io.FixedLenFeature([WIDTH], tf.float32),
        "y": tf.io.FixedLenFeature([1], tf.float32),
    }
    return Examples(tuple(sorted(map(str, folder.iterdir()))), spec, "y")
