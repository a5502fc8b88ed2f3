"""A small model with the signatures of the trainer's export, so that every answer is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

COLUMNS = [
    {"name": "size", "dtype": "float32", "argument": "size"},
    {"name": "rooms", "dtype": "int64", "argument": "rooms"},
    {"name": "the town", "dtype": "string", "argument": "the_town"},
]
ROWS = "id,size,rooms,the town\na,1.5,2,Oslo\nb,,3,\nc,-4,,Ås\n"
# size + rooms + 10 in Oslo; missing values count as 0.
OUTPUTS = [13.5, 3.0, -4.0]


def write_model(folder: Path, *, raw_reads_missing: bool = True) -> Path:
    """Export a SavedModel.

    Args:
        folder: where to write.
        raw_reads_missing: whether `raw` takes NaN and the smallest int64 as missing.
    """
    import tensorflow as tf

    def outputs(size: Any, rooms: Any, town: Any) -> dict[str, Any]:
        value = size + tf.cast(rooms, tf.float32) + 10.0 * tf.cast(town == "Oslo", tf.float32)
        names = tf.where(value > 0, "high", "low ≤ 0")
        return {"outputs": value, "prediction": names}

    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
        def serve(self, examples: Any) -> dict[str, Any]:
            spec = {c["name"]: tf.io.VarLenFeature(c["dtype"]) for c in COLUMNS}
            shape = [tf.size(examples, tf.int64), tf.constant(1, tf.int64)]
            parsed = tf.io.parse_example(examples, spec).items()
            dense = {
                n: tf.sparse.to_dense(tf.SparseTensor(v.indices, v.values, shape))
                for n, v in parsed
            }
            return outputs(*(dense[c["name"]] for c in COLUMNS))

        @tf.function(
            input_signature=[
                tf.TensorSpec([None, None], c["dtype"], name=c["argument"]) for c in COLUMNS
            ]
        )
        def raw(self, size: Any, rooms: Any, the_town: Any) -> dict[str, Any]:
            if raw_reads_missing:
                size = tf.where(tf.math.is_nan(size), 0.0, size)
                rooms = tf.where(rooms == rooms.dtype.min, tf.zeros_like(rooms), rooms)
            return outputs(size, rooms, the_town)

    module = Module()
    signatures = {"serving_default": module.serve, "raw": module.raw}
    tf.saved_model.save(module, str(folder), signatures=signatures)
    (folder / "assets.extra").mkdir()
    listed = {"version": 1, "columns": COLUMNS}
    (folder / "assets.extra" / "raw_columns.json").write_text(json.dumps(listed))
    return folder
