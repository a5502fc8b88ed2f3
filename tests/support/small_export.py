"""A small SavedModel with the signature and raw columns of an export of the Trainer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf

CITIES = ["Lima", "Oslo", "Rome"]


def score(kind: str, area: np.ndarray, city: np.ndarray) -> np.ndarray:
    """Return the prediction of the model in float64, `[rows]`.

    Args:
        kind: binary or regression.
        area: `[rows]`, 0 where it is missing.
        city: Texts `[rows]`, empty where one is missing.
    """
    z = 0.5 * area - 1.0 * (city == "Oslo")
    return z if kind == "regression" else 1 / (1 + np.exp(-z))


def export(kind: str, folder: Path) -> None:
    """Write the SavedModel."""
    parsed = {
        "area": tf.io.FixedLenFeature([1], tf.float32, [0.0]),
        "city": tf.io.FixedLenFeature([1], tf.string, [""]),
    }

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(examples):
        rows = tf.io.parse_example(examples, parsed)
        z = 0.5 * rows["area"] - tf.cast(rows["city"] == "Oslo", tf.float32)
        return {"outputs": z if kind == "regression" else tf.sigmoid(z)}

    tf.saved_model.save(tf.Module(), str(folder), signatures={"serving_default": serve})
    (folder / "assets.extra").mkdir()
    columns = [{"name": "area", "dtype": "float32"}, {"name": "city", "dtype": "string"}]
    (folder / "assets.extra" / "raw_columns.json").write_text(json.dumps({"columns": columns}))


def write_rows(
    folder: Path, area: np.ndarray, city: np.ndarray, label: np.ndarray, *, group: int = 1000
) -> None:
    """Write raw rows as ExampleGen does; NaN areas and empty cities are missing values."""
    folder.mkdir(parents=True)
    lists = {
        "area": pa.array(
            [None if np.isnan(each) else [each] for each in area], pa.large_list(pa.float32())
        ),
        "city": pa.array(
            [[each.encode()] if each else None for each in city], pa.large_list(pa.large_binary())
        ),
        "label": pa.array([[each] for each in label], pa.large_list(pa.float32())),
    }
    pq.write_table(pa.table(lists), folder / "part-00000.parquet", row_group_size=group)
