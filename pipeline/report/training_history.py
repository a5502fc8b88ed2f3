"""What the last checkpoint of a training says: metrics of each epoch, skipped windows, its end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

EVAL = "val_"
"""Prefix of the metrics of the eval split, as in Keras."""


@dataclass(frozen=True)
class TrainingHistory:
    """A training up to its last checkpoint.

    Attributes:
        logs: Metric -> its value after each epoch; metrics of the eval split begin with `EVAL`.
        steps: Optimizer steps.
        epochs: Epochs that began.
        stopped: Why it ended, such as `epochs`; "" if it did not end.
        skipped: Reason -> number of windows that updated nothing.
    """

    logs: Mapping[str, Sequence[float]]
    steps: int | None = None
    epochs: int | None = None
    stopped: str = ""
    skipped: Mapping[str, int] = field(default_factory=dict)


def history_of(checkpoints: Path) -> TrainingHistory | None:
    """Return the history in the newest checkpoint below a folder; None if it has none.

    Args:
        checkpoints: Folder of the Trainer's checkpoints, with a folder for each fingerprint.
    """
    # TensorFlow names the latest checkpoint of a folder in the file `checkpoint`.
    states = sorted(checkpoints.glob("*/checkpoint"), key=lambda file: file.stat().st_mtime)
    if not states:
        return None
    import tensorflow as tf

    latest = tf.train.latest_checkpoint(str(states[-1].parent))
    reader = None if latest is None else tf.train.load_checkpoint(latest)
    if reader is None or not reader.has_tensor("position"):
        return None
    position = json.loads(reader.get_tensor("position"))
    calls = position.get("calls") or [{}]
    result = calls[-1].get("result") or {}
    return TrainingHistory(
        logs=position.get("history") or {},
        steps=result.get("steps"),
        epochs=result.get("epochs", position.get("epoch")),
        stopped=result.get("stopped") or "",
        skipped=result.get("skipped") or {},
    )
