"""A run's whole state on disk: killed anywhere, it continues with the same weights."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from trainer_module.train_step import TrainStep


class Checkpoints:
    """Saves and restores model, optimizer, EMA, loss scale, counters and data position.

    It is only ever called between optimizer steps, where gradients do not outlive their window.
    Dropout needs no state of its own: its masks are a function of seeds and step.
    """

    def __init__(
        self,
        directory: str,
        train_step: TrainStep,
        *,
        fingerprint: str = "",
        keep: int = 2,
        every_steps: int | None = None,
        further_variables: Sequence[tf.Variable] = (),
    ) -> None:
        """Prepares the folder; nothing is read or written yet.

        Args:
            directory: Folder for this run's checkpoints; created when the first is saved.
            train_step: Holds the model, the optimizer and the counters.
            fingerprint: Of configuration and data: a checkpoint of another is not continued.
            keep: How many of the latest to keep.
            every_steps: Optimizer steps between two, beside those at the end of epochs.
            further_variables: Of actions.
        """
        self.every_steps = every_steps
        self._position = _Json()
        self._fingerprint = fingerprint
        self._checkpoint = tf.train.Checkpoint(
            model=_Variables(v.value for v in train_step.model.variables),
            optimizer=_Variables(v.value for v in train_step.optimizer.variables),
            train_step=_Variables(train_step.state()),
            actions=_Variables(further_variables),
            position=self._position,
        )
        folder = os.path.join(directory, fingerprint[:16]) if fingerprint else directory
        self._manager = tf.train.CheckpointManager(self._checkpoint, folder, max_to_keep=keep)

    @property
    def directory(self) -> str:
        """The folder that holds the checkpoints."""
        return self._manager.directory

    def save(self, position: dict[str, Any], step: int) -> None:
        """Writes one checkpoint."""
        self._position.value = {**position, "fingerprint": self._fingerprint}
        self._manager.save(checkpoint_number=step)

    def restore(self) -> dict[str, Any] | None:
        """Restores the latest checkpoint and returns its position, or None when there is none.

        Raises:
            ValueError: The checkpoint is of another model or optimizer.
        """
        latest = self._manager.latest_checkpoint
        if latest is None:
            return None
        try:
            self._checkpoint.restore(latest).assert_consumed()
        except (AssertionError, ValueError, tf.errors.InvalidArgumentError) as error:
            raise ValueError(
                f"the checkpoint {latest} is of another model or optimizer ({error}): give "
                "another trainer.checkpoint_dir, or delete the folder to start over."
            ) from error
        logging.info("Continuing from checkpoint %s", latest)
        return self._position.value


class _Variables(tf.Module):
    """Variables by their place: how Keras tracks them changes from version to version."""

    def __init__(self, variables: Any) -> None:
        super().__init__()
        self.items = list(variables)


class _Json(tf.train.experimental.PythonState):
    def __init__(self) -> None:
        super().__init__()
        self.value: dict[str, Any] = {}

    def serialize(self) -> str:
        return json.dumps(self.value)

    def deserialize(self, string_value: Any) -> None:
        self.value = json.loads(string_value)
