"""Keep the best model so far on disk during training."""

from __future__ import annotations

import math
import os

import keras
import tensorflow as tf
from absl import logging

from trainer_module.common.improvement import Mode, better_mode, is_better
from trainer_module.common.json_values import Json
from trainer_module.devices.main_thread import doing
from trainer_module.loop.callbacks.callback import Callback, EpochEnd


class ExportBest(Callback):
    """Write the model after each epoch that is the best so far, with EMA weights if there are any.

    A path that ends with `.keras` becomes a Keras file (`keras.saving.load_model`), any other a
    SavedModel (`tf.saved_model.load`, TensorFlow Serving). The previous best model is replaced only
    once the new one is complete.
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
        """Create the callback; write nothing yet.

        Args:
            model: The model, written in its state during `on_epoch`.
            path: Path of the file or folder.
            monitor: "loss" or a metric's name, on the eval split.
            mode: "min", "max", or "auto" to derive it from the metric's name.
            min_delta: Smallest change that counts as an improvement.

        Raises:
            ValueError: `mode` is "auto" and the metric's name does not determine it.
        """
        self.model = model
        self.path = path.rstrip("/")
        self.monitor = monitor
        self.mode: Mode = better_mode(monitor, mode)
        self.min_delta = min_delta
        self._best = math.nan

    def on_epoch(self, end: EpochEnd) -> bool:
        """Write the model if the metric is the best so far."""
        value = end.metric(self.monitor, field="ExportBest: monitor")
        if is_better(value, self._best, mode=self.mode, min_delta=self.min_delta):
            with doing("writing the best model", limit="long"):
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
        # A folder cannot replace another atomically: the old one is renamed meanwhile, and
        # restored if the process was killed in between.
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

    def state(self) -> dict[str, Json]:
        """Return the best value."""
        return {"best": None if math.isnan(self._best) else self._best}

    def restore(self, state: dict[str, Json]) -> None:
        """Restore the output of `state`."""
        self._best = math.nan if state["best"] is None else state["best"]
