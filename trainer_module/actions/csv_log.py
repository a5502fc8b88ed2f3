"""A table of the epochs that any program reads."""

from __future__ import annotations

import csv
import os
from typing import Any

import tensorflow as tf

from trainer_module.actions.action import Action, EpochEnd


class CsvLog(Action):
    """Writes one row per epoch: epoch, step, loss, and each metric of the eval split.

        epoch,step,loss,eval_loss,eval_auc
        1,19,0.6931,0.6520,0.7123

    `loss` is that of training, regularisation included. The whole file is written each time, so
    that a run that continues from a checkpoint repeats no row.
    """

    def __init__(self, path: str) -> None:
        """Creates the action; the file is written after the first epoch."""
        self.path = path
        self._rows: list[dict[str, Any]] = []

    def on_epoch(self, end: EpochEnd) -> bool:
        """Adds the epoch's row."""
        metrics = {f"eval_{name}": value for name, value in end.metrics.items()}
        self._rows.append({"epoch": end.epoch, "step": end.step, "loss": end.loss, **metrics})
        tf.io.gfile.makedirs(os.path.dirname(self.path) or ".")
        with tf.io.gfile.GFile(f"{self.path}.writing", "w") as stream:
            writer = csv.DictWriter(stream, self._rows[-1], lineterminator="\n")
            writer.writeheader()
            writer.writerows(self._rows)
        tf.io.gfile.rename(f"{self.path}.writing", self.path, overwrite=True)
        return False

    def state(self) -> dict[str, Any]:
        """Returns the rows so far."""
        return {"rows": self._rows}

    def restore(self, state: dict[str, Any]) -> None:
        """Continues after the rows that `state` returned."""
        self._rows = list(state["rows"])
