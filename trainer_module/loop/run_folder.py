"""One folder for the checkpoints of each run, named by the run's fingerprint."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from shared_core.atomic_files import atomic_write_text
from trainer_module.common.differences import differences, summarize_differences
from trainer_module.common.remote import with_retries

_FACTS = "facts.json"
_CHUNK_BYTES = 8 << 20
_TAIL_BYTES = 64 << 10


def run_folder(parent: str, facts: Mapping[str, Any], *, makes: bool = True) -> str:
    """Return the folder below `parent` of the run with these facts; makes it, if `makes`.

    Where other runs have been there and this one not, the log says how it differs from the last of
    them: it will train from its beginning.
    """
    text = json.dumps(facts, sort_keys=True, indent=1)
    folder = os.path.join(parent, hashlib.sha256(text.encode()).hexdigest()[:16])
    record = os.path.join(folder, _FACTS)

    def make() -> None:
        if makes and not tf.io.gfile.exists(record):
            others = tf.io.gfile.glob(os.path.join(parent, "*", _FACTS))
            if others:
                last = max(others, key=lambda path: tf.io.gfile.stat(path).mtime_nsec)
                _log_difference(last, facts, folder)
            atomic_write_text(record, f"{text}\n")

    with_retries(make, what=f"making the folder {folder}")
    return folder


def files_identity(files: Sequence[str]) -> list[str]:
    """Return size and digest of each file, whatever its name.

    A `.gz` file ends with the checksum of its content: of it the end is read; others are read
    whole.
    """
    found = [(path, tf.io.gfile.stat(path)) for path in files]
    return [_identity(path, stat.length, stat.mtime_nsec) for path, stat in found]


@functools.lru_cache(maxsize=1024)
def _identity(path: str, size: int, mtime_nsec: int) -> str:
    digest = hashlib.sha256()
    with tf.io.gfile.GFile(path, "rb") as stream:
        if path.endswith(".gz"):
            stream.seek(max(0, size - _TAIL_BYTES))
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return f"{size} bytes {digest.hexdigest()[:16]}"


def _log_difference(record: str, facts: Mapping[str, Any], folder: str) -> None:
    try:
        with tf.io.gfile.GFile(record) as stream:
            found = summarize_differences(differences(json.loads(stream.read()), facts))
    except (ValueError, tf.errors.OpError) as error:
        found = f"its {_FACTS} cannot be read: {error}"
    logging.warning(
        "Training from the beginning, with checkpoints in %s: the run before it, in %s, was another"
        " (%s)",
        folder,
        os.path.dirname(record),
        found,
    )
