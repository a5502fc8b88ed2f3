"""tf.Examples and TFRecord files of them, written with nothing of ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np


def serialized(row: Mapping[str, Any]) -> bytes:
    """Returns a row as a tf.Example.

    Args:
        row: Name -> text, bytes, int or float, or a list of them. None and an empty list are
            features that are not there.
    """
    import tensorflow as tf

    example = tf.train.Example()
    for name, value in row.items():
        values = value if isinstance(value, list | tuple | np.ndarray) else [value]
        values = [each.encode() if isinstance(each, str) else each for each in values]
        if len(values) == 0 or values[0] is None:
            continue
        feature = example.features.feature[name]
        if isinstance(values[0], bytes):
            feature.bytes_list.value.extend(values)
        elif isinstance(values[0], int | np.integer):
            feature.int64_list.value.extend(values)
        else:
            feature.float_list.value.extend(values)
    return example.SerializeToString(deterministic=True)


def serialized_rows(columns: Mapping[str, Iterable[Any]]) -> list[bytes]:
    """Returns the rows of columns, name -> a value for each row, as tf.Examples."""
    rows = zip(*columns.values(), strict=True)
    return [serialized(dict(zip(columns, row, strict=True))) for row in rows]


def write_tfrecord(path: Path, rows: Iterable[Mapping[str, Any]], compression: str = "") -> None:
    """Writes rows; None and NaN are left out."""
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for row in rows:
            writer.write(serialized({name: value for name, value in row.items() if value == value}))
