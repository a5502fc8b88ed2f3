"""TFRecord files of tf.Examples, written with nothing of ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def write_tfrecord(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes rows of texts, ints and floats; None and NaN are left out."""
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in rows:
            example = tf.train.Example()
            for name, value in row.items():
                feature = example.features.feature[name]
                if isinstance(value, str):
                    feature.bytes_list.value.append(value.encode())
                elif isinstance(value, int):
                    feature.int64_list.value.append(value)
                elif value is not None and value == value:
                    feature.float_list.value.append(value)
            writer.write(example.SerializeToString())
