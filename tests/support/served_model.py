"""A small model with the signatures and raw columns of the trainer's export."""

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


def write_model(folder: Path) -> Path:
    """Export a SavedModel, whose answers nobody asks for."""
    import tensorflow as tf

    columns = [tf.TensorSpec([None, None], c["dtype"], name=c["argument"]) for c in COLUMNS]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(examples: Any) -> dict[str, Any]:
        return {"outputs": tf.strings.length(examples)}

    @tf.function(input_signature=columns)
    def raw(size: Any, rooms: Any, the_town: Any) -> dict[str, Any]:
        return {"outputs": size + tf.cast(rooms, tf.float32)}

    signatures = {"serving_default": serve, "raw": raw}
    tf.saved_model.save(tf.Module(), str(folder), signatures=signatures)
    (folder / "assets.extra").mkdir()
    listed = {"version": 1, "columns": COLUMNS}
    (folder / "assets.extra" / "raw_columns.json").write_text(json.dumps(listed))
    return folder
