"""Files with distinct rows: an id, some features, a label of two classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf
from parquet_files import write_parquet

from trainer_module.data.input_pipeline import Examples

WIDTH = 4


def write(folder: Path, *, files: int, rows: int) -> Path:
    """Write the rows in turn to `files` files, which differ in length.

    Three files are Parquet files, other numbers are TFRecord files.
    """
    folder.mkdir(parents=True)
    if files == 3:
        return _write_parquet(folder, files=files, rows=rows)
    random = np.random.default_rng(rows)
    writers = [tf.io.TFRecordWriter(str(folder / f"rows-{number}")) for number in range(files)]
    for number in range(rows):
        x = random.normal(size=WIDTH).astype("float32")
        features = {
            "id": tf.train.Feature(int64_list=tf.train.Int64List(value=[number])),
            "x": tf.train.Feature(float_list=tf.train.FloatList(value=x)),
            "y": tf.train.Feature(float_list=tf.train.FloatList(value=[float(x.sum() > 0.3)])),
        }
        example = tf.train.Example(features=tf.train.Features(feature=features))
        writers[number % files].write(example.SerializeToString())
    for writer in writers:
        writer.close()
    return folder


def _write_parquet(folder: Path, *, files: int, rows: int) -> Path:
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
