"""Keep the best model so far on disk during training."""

from __future__ import annotations

import math
import os
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from trainer_module.common.improvement import Mode, better_mode, is_better
from trainer_module.loop.callbacks.callback import Callback, EpochEnd


class ExportBest(Callback):
    """Write the model after each epoch that is the best so far, averaged weights if there are.

    A path that ends with `.keras` becomes a Keras file (`keras.saving.load_model`), any other a
    SavedModel (`tf.saved_model.load`, TensorFlow Serving). The best so far stays in its place until
    the next is complete.
    """

    on_chief_only = True

    def __init__(
        self,
        model: keras.Model,
        path: str,
        *,
        monitor: str = "loss",
        mode: str = "auto",
        min_delta: float = 0.0,
    ) -> None:
        """Create the callback; nothing is written yet.

        Args:
            model: Written as it is while `on_epoch` is called.
            path: Of the file or folder.
            monitor: "loss" or a metric's name, on the eval split.
            mode: "min", "max", or "auto": what the name of the metric says.
            min_delta: A smaller change is no improvement.

        Raises:
            ValueError: `mode` is "auto" and the metric's name does not show it.
        """
        self.model = model
        self.path = path.rstrip("/")
        self.monitor = monitor
        self.mode: Mode = better_mode(monitor, mode)
        self.min_delta = min_delta
        self._best = math.nan

    def on_epoch(self, end: EpochEnd) -> bool:
        """Compare with the best; write the model if it is better."""
        value = end.metric(self.monitor, field="ExportBest: monitor")
        if is_better(value, self._best, mode=self.mode, min_delta=self.min_delta):
            self._write()
            self._best = value
            logging.info("Epoch %d has the best %s: %s", end.epoch, self.monitor, self.path)
        return False

    def _write(self) -> None:
        gfile = tf.io.gfile
        gfile.makedirs(os.path.dirname(self.path) or ".")
        if self.path.endswith(".keras"):
            complete = f"{self.path.removesuffix('.keras')}.writing.keras"
            self.model.save(complete)
            gfile.rename(complete, self.path, overwrite=True)
            return
        # A folder cannot replace another in one step: the old one waits beside it for that moment,
        # and comes back if the process was killed in it.
        complete, before = f"{self.path}.writing", f"{self.path}.before"
        if gfile.exists(before) and not gfile.exists(self.path):
            gfile.rename(before, self.path)
        for left_over in (complete, before):
            if gfile.exists(left_over):
                gfile.rmtree(left_over)
        self.model.export(complete, verbose=False)
        if gfile.exists(self.path):
            gfile.rename(self.path, before)
        gfile.rename(complete, self.path)
        if gfile.exists(before):
            gfile.rmtree(before)

    def state(self) -> dict[str, Any]:
        """Return the best value."""
        return {"best": None if math.isnan(self._best) else self._best}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken."""
        self._best = math.nan if state["best"] is None else state["best"]
