"""Write seeded data of ordinary size, and the YAML of a pipeline that runs it on Flink.

python tests/pipeline/engines/flink_data.py FOLDER --floats 300 --rows 20000
python tests/pipeline/engines/flink_data.py FOLDER --floats 20 --ints 10 --texts 10 --rows 100000
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml

SEED = 23
KEY, NOTE = "key", "note"
"""Columns that are passed through: an integer and a text, each missing in some rows."""


def write(
    folder: Path,
    *,
    floats: int,
    ints: int = 0,
    texts: int = 0,
    rows: int,
    source: Literal["tfrecord", "parquet"] = "tfrecord",
) -> Path:
    """Write rows and `pipeline.yaml` into a folder, and return the YAML's path."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = table(floats=floats, ints=ints, texts=texts, rows=rows)
    data = folder / f"rows.{source}"
    _WRITERS[source](data, columns)
    groups: list[dict[str, Any]] = [{"name": "floats", "columns": "x*", "scale": "z_score"}]
    if ints:
        groups.append({"name": "ints", "columns": "n*", "scale": "min_max"})
    if texts:
        encode = {"vocabulary": {"top_k": 1000}}
        groups.append({"name": "texts", "columns": "t*", "encode": encode})
    batch = min(500, rows // 6)
    config = {
        "name": "ordinary",
        "data": {"path": data.name, "source": source},
        "features": {
            "groups": groups,
            "label": {"column": "y", "kind": "binary"},
            "passthrough": [KEY, NOTE],
        },
        "training": {"global_batch_size": batch, "micro_batch_size": batch, "epochs": 1},
        "output": {"folder": "out"},
    }
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(config))
    return file


def table(*, floats: int, ints: int, texts: int, rows: int) -> dict[str, Any]:
    """Return column -> values; a tenth of the floats is missing."""
    random = np.random.default_rng(SEED)
    made: dict[str, Any] = {}
    for i in range(floats):
        values = random.lognormal(i % 4, 1.0, rows).round(4)
        made[f"x{i}"] = np.ma.array(values, mask=random.random(rows) < 0.1).tolist()
    for i in range(ints):
        made[f"n{i}"] = random.integers(0, 10 ** (1 + i % 5), rows).tolist()
    for i in range(texts):
        made[f"t{i}"] = [f"word {v}" for v in random.zipf(1.5, rows) % 5_000]
    made["y"] = random.integers(0, 2, rows).tolist()
    made[KEY] = [i if i % 3 else None for i in range(1, rows + 1)]
    made[NOTE] = [f"note {i}" if i % 2 else None for i in range(1, rows + 1)]
    return made


def _write_tfrecord(file: Path, columns: dict[str, Any]) -> None:
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(file)) as writer:
        for values in zip(*columns.values(), strict=True):
            writer.write(example(dict(zip(columns, values, strict=True))))


def _write_parquet(file: Path, columns: dict[str, Any]) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), file)


_WRITERS = {"tfrecord": _write_tfrecord, "parquet": _write_parquet}


def example(row: Mapping[str, Any]) -> bytes:
    """A row as a serialized tf.Example, without what is None."""
    import tensorflow as tf

    made = tf.train.Example()
    for name, value in row.items():
        feature = made.features.feature[name]
        if isinstance(value, str):
            feature.bytes_list.value.append(value.encode())
        elif isinstance(value, int):
            feature.int64_list.value.append(value)
        elif value is not None:
            feature.float_list.value.append(value)
    return made.SerializeToString()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    for kind in ("floats", "ints", "texts", "rows"):
        parser.add_argument(f"--{kind}", type=int, default=0)
    print(write(**vars(parser.parse_args())))
