"""Name the checkpoint folder of a run after its fingerprint."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping

import tensorflow as tf
from absl import logging

from shared_core.atomic_files import atomic_write_text
from trainer_module.common.differences import differences, summarize_differences
from trainer_module.common.json_values import Json
from trainer_module.common.remote import with_retries

_FACTS = "facts.json"


def run_folder(parent: str, facts: Mapping[str, Json], *, makes: bool = True) -> str:
    """Return the folder below `parent` for the run with these facts; create it if `makes`.

    If the folder is new and `parent` has those of other runs, the log shows how this run differs
    from the latest of them, because it starts from the beginning.
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


def _log_difference(record: str, facts: Mapping[str, Json], folder: str) -> None:
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
