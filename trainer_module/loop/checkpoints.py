"""Save and restore the whole state of a run.

A run that is killed at any point resumes with the same weights.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

import tensorflow as tf
from absl import logging

from trainer_module.common.differences import differences, summarize_differences
from trainer_module.common.remote import PATIENCE_SECONDS, error_reason, is_transient
from trainer_module.common.tensors import Json
from trainer_module.common.user_values import check_positive_int
from trainer_module.devices.multi_worker import worker_group
from trainer_module.loop.checkpoint_folder import CheckpointFolder
from trainer_module.step.reports import Step

_POSITION = "position"
# Of positions and variables; another number when either changes.
_FORMAT = 4
# Assumed duration of a save before the first: by default the first second needs no checkpoint.
_FIRST_GUESS_SECONDS = 0.01

# Raises an error if a checkpoint, given its position, does not belong to the run.
_CheckPosition: TypeAlias = Callable[[dict[str, Json]], None]
_Value = TypeVar("_Value")


class _Saved(NamedTuple):
    """The content of a checkpoint: its position, and a value per variable."""

    position: dict[str, Json]
    values: list[tf.Tensor]


class Checkpoints:
    """Save and restore model, optimizer, EMA, loss scale, counters and data position.

    The loop calls it only between optimizer steps, so no gradients need saving. Dropout has no
    state: its masks are a function of the seeds and the step. With several workers the chief saves
    to a folder that all workers can read, and all workers restore the checkpoint that the chief
    selects.

    The files have TensorFlow's format (`tf.train.load_checkpoint` reads them). Variables are stored
    by position (`model/0`), because the object paths of Keras change between versions.
    `tf.train.Checkpoint` is not used: it walks over all objects at each save, which takes several
    times as long as writing a small model.
    """

    def __init__(
        self,
        directory: str,
        train_step: Step,
        *,
        keep: int = 2,
        every_steps: int | None = None,
        every_minutes: float | None = None,
        share_of_time: float | None = 0.01,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Check the options; write nothing yet.

        Args:
            directory: Folder for this run's checkpoints; created by the first save.
            train_step: Holds the model, the optimizer and the counters.
            keep: Number of checkpoints to keep, at least 1. With 2 or more, a damaged latest
                checkpoint costs only the steps since the previous one.
            every_steps: Optimizer steps between two checkpoints, in addition to those at the ends
                of epochs.
            every_minutes: Longest time between two checkpoints, and so the most training time that
                a kill can cost. It is checked between calls of the graph and counted from the end
                of a save, by the chief's clock.
            share_of_time: Largest share of training time to spend on checkpoints at the ends of
                epochs. With 0.01, after a save of 3 seconds the next one is due in 300, however
                short epochs are. That is near the best for a run that is stopped every few hours:
                sqrt(2 · 3 s · 4 h) = 294 s (Young, "A first order approximation to the optimum
                checkpoint interval", 1974). None saves at the end of every epoch.
            patience_seconds: How long to retry an operation while the file system does not respond.

        Raises:
            ValueError: `keep` or `every_steps` is below 1, `every_minutes` is not above 0, or
                `share_of_time` is not above 0 and at most 1.
        """
        if every_minutes is not None and not 0 < every_minutes < math.inf:
            raise ValueError(
                f"every_minutes={every_minutes}: use a number above 0, such as 5 or 0.5, or None."
            )
        if share_of_time is not None and not 0 < share_of_time <= 1:
            raise ValueError(
                f"share_of_time={share_of_time}: use a number above 0 and at most 1, or None."
            )
        self._folder = CheckpointFolder(
            directory, keep=check_positive_int("keep", keep), patience_seconds=patience_seconds
        )
        self._workers = worker_group(train_step.strategy)
        self.every_steps = (
            None if every_steps is None else check_positive_int("every_steps", every_steps)
        )
        self._every_seconds = None if every_minutes is None else 60 * every_minutes
        self._saved_at = time.monotonic()
        self._pause_per_second = 0.0 if share_of_time is None else 1 / share_of_time
        self._due_at = time.monotonic() + _FIRST_GUESS_SECONDS * self._pause_per_second
        model, optimizer = train_step.model, train_step.optimizer
        self._variables: dict[str, tf.Variable] = {
            **_by_position("model", [v.value for v in model.variables]),
            **_by_position("optimizer", [v.value for v in optimizer.variables]),
            **_by_position("train_step", train_step.state()),
        }

    def hold_callbacks(self, variables: Sequence[tf.Variable]) -> None:
        """Include variables of the loop's callbacks in later saves and restores."""
        others = {k: v for k, v in self._variables.items() if not k.startswith("callbacks/")}
        self._variables = {**others, **_by_position("callbacks", variables)}

    def due(self) -> bool:
        """Return whether enough time has passed to save at the end of an epoch."""
        return time.monotonic() >= self._due_at or self.is_overdue()

    def is_overdue(self) -> bool:
        """Return whether `every_minutes` have passed since the last save or the start."""
        if self._every_seconds is None:
            return False
        return time.monotonic() - self._saved_at >= self._every_seconds

    @property
    def directory(self) -> str:
        """The folder."""
        return self._folder.directory

    @property
    def latest(self) -> str | None:
        """The path of the latest complete checkpoint; None before the first."""
        return self._folder.kept[-1] if self._folder.kept else None

    def save(self, position: dict[str, Json], step: int) -> None:
        """Write one checkpoint. The previous one stays the latest until this one is complete.

        All workers must call it, because reading a variable that is summed over replicas needs all
        of them.

        Raises:
            OSError: The checkpoint cannot be written. The message names the problem and the
                checkpoint that training would resume from.
        """
        started = time.monotonic()
        with tf.device("/cpu:0"):
            tensors = [tf.convert_to_tensor(variable) for variable in self._variables.values()]
        if not self._workers.is_chief:
            return
        described = {"format": _FORMAT, "variables": self._describe_variables()}
        text = json.dumps({**position, **described})
        values = dict(zip(self._variables, tensors, strict=True))
        try:
            self._folder.write(step, {**values, _POSITION: tf.constant(text)})
        except tf.errors.OpError as error:
            raise self._save_error(step, error) from error
        ended = time.monotonic()
        self._saved_at = ended
        self._due_at = ended + (ended - started) * self._pause_per_second

    def _save_error(self, step: int, error: tf.errors.OpError) -> OSError:
        """Return the error to raise. Delete the partial checkpoint to free its space."""
        is_full = isinstance(error, tf.errors.ResourceExhaustedError)
        with contextlib.suppress(tf.errors.OpError):
            self._folder.delete_others()
        kept = self._folder.kept[-1] if self._folder.kept else None
        return OSError(
            errno.ENOSPC if is_full else errno.EIO,
            f"the checkpoint of step {step} cannot be written to {self.directory} "
            f"({error_reason(error)}): "
            + ("free space there" if is_full else "see to it that the folder can be written")
            + ", or give another directory for checkpoints (checkpoint_dir), then start "
            + (
                f"again: training continues from {kept}, which is whole."
                if kept
                else "again: training starts from its beginning, since there is no checkpoint yet."
            ),
        )

    def restore(self, check: _CheckPosition = lambda position: None) -> dict[str, Json] | None:
        """Restore the latest checkpoint and return its position, or None if there is none.

        If the latest checkpoint is damaged, an error is logged and the previous one is restored.
        With several workers the chief selects the checkpoint.

        Args:
            check: Called with the position before any variable changes; may raise.

        Raises:
            ValueError: The checkpoint has another model, optimizer or callbacks, all checkpoints
                are damaged, or this worker does not see the chief's checkpoint.
            OSError: The folder's file system does not respond.
        """
        found = self._latest(check) if self._workers.is_chief else None
        path = self._workers.broadcast_from_chief(
            "the checkpoint to continue from", found and found[0]
        )
        if path is None:
            return None
        position, values = found[1] if found is not None else self._read_as_chief(path, check)
        for variable, value in zip(self._variables.values(), values, strict=True):
            variable.assign(value)
        logging.info("Continuing from checkpoint %s", path)
        return position

    def _read_as_chief(self, path: str, check: _CheckPosition) -> _Saved:
        try:
            return self._read(path, check)
        except tf.errors.OpError as error:
            raise ValueError(
                f"this worker cannot read the checkpoint {path}, from which the chief continues "
                f"({error_reason(error)}): the directory for checkpoints has "
                "to be one that all workers see."
            ) from error

    def _latest(self, check: _CheckPosition) -> tuple[str, _Saved] | None:
        """Return path and content of the latest readable checkpoint."""
        while self._folder.kept:
            latest = self._folder.kept[-1]
            try:
                return latest, self._read(latest, check)
            except tf.errors.OpError as error:
                reason = error_reason(error)
                if is_transient(
                    error
                ):  # it may be complete: resuming from another would lose steps
                    raise OSError(
                        errno.EIO,
                        f"the checkpoint {latest} cannot be read now ({reason}): start again when "
                        "its file system answers.",
                    ) from error
                if len(self._folder.kept) == 1:
                    raise ValueError(
                        f"the checkpoint {latest} cannot be read ({reason}) and there is none "
                        "before it: give another directory for checkpoints (checkpoint_dir), "
                        f"or delete {self.directory} to start over."
                    ) from error
                logging.error(
                    "The checkpoint %s is damaged (%s): continuing from the one before it, %s",
                    latest,
                    reason,
                    self._folder.kept[-2],
                )
                self._folder.kept.pop()
        return None

    def _read(self, path: str, check: _CheckPosition) -> _Saved:
        types = {name: variable.dtype for name, variable in self._variables.items()}
        (text,) = self._folder.read(path, {_POSITION: tf.string})
        position = json.loads(text.numpy())
        if position.get("format") != _FORMAT:
            raise ValueError(
                f"the checkpoint {path} was written by another version of trainer_module: give "
                "another directory for checkpoints, and train again."
            )
        check(position)
        self._check(path, position["variables"])
        return _Saved(position, self._folder.read(path, types))

    def _check(self, path: str, there: dict[str, str]) -> None:
        """Raise ValueError if the variables of a checkpoint differ from this run's."""
        found = differences(there, self._describe_variables(), missing="none")
        if found:
            raise ValueError(
                f"the checkpoint {path} is of another model, optimizer or callbacks "
                f"({summarize_differences(found)}): give another directory for "
                f"checkpoints, or delete {self.directory} to start over."
            )

    def _describe_variables(self) -> dict[str, str]:
        """Return type and shape of each variable, by its position."""
        return {name: f"{v.dtype.name}{v.shape.as_list()}" for name, v in self._variables.items()}


def _by_position(group: str, values: Sequence[_Value]) -> dict[str, _Value]:
    return {f"{group}/{i}": value for i, value in enumerate(values)}
