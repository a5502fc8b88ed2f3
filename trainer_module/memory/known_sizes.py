"""Store measured sizes in files: one cache for all runs, and one record per run."""

from __future__ import annotations

import os
from typing import Literal

import tensorflow as tf
from absl import logging
from pydantic import BaseModel, ConfigDict, ValidationError


class KnownSize(BaseModel):
    """A micro-batch size that was found.

    Attributes:
        format: Version of this record.
        key: `request_hash` of its request.
        rows: Micro-batch size.
        bytes: Measured need of the step.
        next_rows: The next larger size; null for none.
        next_bytes: Least need of that size.
        budget: Bytes of the budget.
        memory_budget: The setting that the bytes come from.
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
        """Return whether `rows` is still the largest size that fits into a budget in bytes."""
        return self.bytes <= budget and (self.next_bytes is None or budget < self.next_bytes)


def default_folder() -> str:
    """Return the user's cache folder for measured sizes."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "tfx-largebatch", "micro_batch_size")


def load(path: str, key: str) -> KnownSize | None:
    """Return the size in a file; None if the file is missing, unreadable or has another key."""
    try:
        if not tf.io.gfile.exists(path):
            return None
        with tf.io.gfile.GFile(path) as stream:
            known = KnownSize.model_validate_json(stream.read())
    except (ValidationError, UnicodeDecodeError, tf.errors.OpError) as error:
        reason = str(error).splitlines()[0]
        logging.warning("Ignoring the unreadable %s and measuring again: %s", path, reason)
        return None
    return known if known.key == key else None


def store(path: str, known: KnownSize) -> None:
    """Write a size atomically; warn if the folder is not writable."""
    partial = f"{path}.{os.getpid()}"  # several processes may write at once
    try:
        tf.io.gfile.makedirs(os.path.dirname(path))
        with tf.io.gfile.GFile(partial, "w") as stream:
            stream.write(known.model_dump_json(indent=1) + "\n")
        tf.io.gfile.rename(partial, path, overwrite=True)
    except tf.errors.OpError as error:
        logging.warning("Cannot keep the micro-batch size in %s: %s", path, error)
