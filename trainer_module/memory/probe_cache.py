"""What was measured, kept as files: in a cache for later runs, beside its checkpoints for a run."""

from __future__ import annotations

import os
from typing import Literal

import tensorflow as tf
from absl import logging
from pydantic import BaseModel, ConfigDict, ValidationError


class Entry(BaseModel):
    """A micro-batch size that was found, under the key of its step (`probe_key.step_key`).

    Attributes:
        format: Of this record.
        key: Of the step.
        rows: Micro-batch size.
        bytes: What it was measured to need.
        next_rows: The next larger size; null where there is none.
        next_bytes: What that needs at least.
        budget: Bytes that it was found for.
        memory_budget: The setting that these bytes come from.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1] = 1
    key: str
    rows: int
    bytes: int
    next_rows: int | None
    next_bytes: int | None
    budget: int
    memory_budget: str

    def answers(self, budget: int) -> bool:
        """Whether `rows` is still the largest that fits, for a budget of so many bytes."""
        return self.bytes <= budget and (self.next_bytes is None or budget < self.next_bytes)


def default_folder() -> str:
    """Returns the user's cache folder for what was measured."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "tfx-largebatch", "micro_batch_size")


def load(path: str, key: str) -> Entry | None:
    """Returns the entry, or None where there is none; an unreadable one is told and ignored."""
    try:
        if not tf.io.gfile.exists(path):
            return None
        with tf.io.gfile.GFile(path) as stream:
            entry = Entry.model_validate_json(stream.read())
    except (ValidationError, UnicodeDecodeError, tf.errors.OpError) as error:
        reason = str(error).splitlines()[0]
        logging.warning("Ignoring the unreadable %s, to be written anew: %s", path, reason)
        return None
    return entry if entry.key == key else None


def store(path: str, entry: Entry) -> None:
    """Writes the entry, whole or not at all; a folder that cannot be written is told and left."""
    partial = f"{path}.{os.getpid()}"
    try:
        tf.io.gfile.makedirs(os.path.dirname(path))
        with tf.io.gfile.GFile(partial, "w") as stream:
            stream.write(entry.model_dump_json(indent=1) + "\n")
        tf.io.gfile.rename(partial, path, overwrite=True)
    except tf.errors.OpError as error:
        logging.warning("Cannot keep the micro-batch size in %s: %s", path, error)
