"""The checkpoint files of a run, and the folder that is named after the run.

A checkpoint is either complete or absent. The latest few are kept.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import tensorflow as tf
from absl import logging

from shared_core.atomic_files import atomic_write_text
from trainer_module.common.differences import differences, summarize_differences
from trainer_module.common.remote import error_reason, with_retries
from trainer_module.common.tensors import Json

_Result = TypeVar("_Result")

_FACTS = "facts.json"
_NAME = re.compile(r"ckpt-(\d+)(?:-\d+)?")
_FILE = re.compile(rf"({_NAME.pattern})\.(index|data-).*")


class CheckpointFolder:
    """A folder of checkpoints in TensorFlow's format.

    Attributes:
        directory: The folder. It is created when the first checkpoint is written.
        kept: Paths of the complete checkpoints, the latest last.
    """

    def __init__(self, directory: str, *, keep: int, patience_seconds: float) -> None:
        """Find the existing checkpoints of a folder."""
        self.directory = directory
        self._keep = keep
        self._patience_seconds = patience_seconds
        self.kept = self._retrying(
            lambda: self._recorded_checkpoints() or self._complete_checkpoints(), "looking into"
        )

    def write(self, step: int, tensors: Mapping[str, tf.Tensor]) -> None:
        """Write a checkpoint. The previous one stays the latest until this one is complete.

        Raises:
            tf.errors.OpError: The checkpoint cannot be written.
        """
        self._retrying(lambda: tf.io.gfile.makedirs(self.directory), "making the folder")
        prefix = self._new_prefix(step)

        def write() -> None:
            with tf.device("/cpu:0"):
                tf.raw_ops.SaveV2(
                    prefix=prefix,
                    tensor_names=list(tensors),
                    shape_and_slices=[""] * len(tensors),
                    tensors=list(tensors.values()),
                )

        self._retrying(write, f"writing the checkpoint of step {step} to")
        kept = [*self.kept, prefix][-self._keep :]
        self._retrying(lambda: self._record(kept), "recording in")
        self.kept = kept
        try:
            self._retrying(self.delete_others, "deleting earlier checkpoints in")
        except tf.errors.OpError as error:  # the next write tries again
            reason = error_reason(error)
            logging.warning("Earlier checkpoints in %s stay: %s", self.directory, reason)

    def read(self, path: str, types: Mapping[str, tf.DType]) -> list[tf.Tensor]:
        """Return tensors of a checkpoint by name.

        Raises:
            tf.errors.OpError: The checkpoint cannot be read.
        """

        def read() -> list[tf.Tensor]:
            with tf.device("/cpu:0"):
                return tf.raw_ops.RestoreV2(
                    prefix=path,
                    tensor_names=list(types),
                    shape_and_slices=[""] * len(types),
                    dtypes=list(types.values()),
                )

        return self._retrying(read, "reading from")

    def _retrying(self, operation: Callable[[], _Result], what: str) -> _Result:
        return with_retries(
            operation, what=f"{what} {self.directory}", patience_seconds=self._patience_seconds
        )

    def _new_prefix(self, step: int) -> str:
        """Return a file prefix that no kept checkpoint has.

        A kill during an overwrite would leave a damaged checkpoint. Two checkpoints can have the
        same step: one that is due by steps and one at the end of the epoch.
        """
        names = (f"ckpt-{step}" + (f"-{n}" if n else "") for n in itertools.count())
        prefixes = (os.path.join(self.directory, name) for name in names)
        return next(prefix for prefix in prefixes if prefix not in self.kept)

    def _recorded_checkpoints(self) -> list[str]:
        """Return the recorded checkpoints; empty if the `checkpoint` file cannot be read."""
        try:
            state = tf.train.get_checkpoint_state(self.directory)
        except ValueError:  # it names no checkpoint, or is not text
            state = None
        return [] if state is None else list(state.all_model_checkpoint_paths)

    def _complete_checkpoints(self) -> list[str]:
        """Return complete checkpoints that are not recorded. TensorFlow writes the index file last.

        The `checkpoint` file can be damaged or missing from a copy, or the first save was killed
        right before writing it.
        """
        found = []
        for path in tf.io.gfile.glob(os.path.join(self.directory, "ckpt-*.index")):
            name = os.path.basename(path).removesuffix(".index")
            if numbers := _NAME.fullmatch(name):
                written = tf.io.gfile.stat(path).mtime_nsec
                found.append((int(numbers[1]), written, os.path.join(self.directory, name)))
        return [path for *_, path in sorted(found)]

    def _record(self, kept: Sequence[str]) -> None:
        """Record checkpoints, the latest last, for this class and `tf.train.latest_checkpoint`."""
        names = [os.path.basename(path) for path in kept]  # so that a folder can be moved
        state = tf.compat.v1.train.generate_checkpoint_state_proto("", names[-1], names)
        atomic_write_text(os.path.join(self.directory, "checkpoint"), str(state))

    def delete_others(self) -> None:
        """Delete checkpoints that are not kept and the partial files of a killed save."""
        for path in tf.io.gfile.glob(os.path.join(self.directory, "ckpt-*")):
            file = _FILE.fullmatch(os.path.basename(path))
            if file and os.path.join(self.directory, file[1]) not in self.kept:
                tf.io.gfile.remove(path)


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
