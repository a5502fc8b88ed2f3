"""What happens between calls of the graph: progress lines, TensorBoard, early stopping."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from absl import logging

from trainer_module.evaluation import is_better
from trainer_module.names import nearest


class LoopProgress(NamedTuple):
    """Where training stands after one call of the graph.

    Attributes:
        step: Optimizer steps taken in all.
        steps: Of those, the call's.
        total_steps: Steps of the whole run; None when the number of rows is not known.
        epoch: Epoch under way, from 1.
        epochs: Epochs of the whole run; None when it is limited by steps.
        loss: Mean loss of the call's windows.
        gradient_norm: Of its last window.
        learning_rate: Of its last window.
        rows: Rows of the call's windows.
        seconds: Duration of the call.
    """

    step: int
    steps: int
    total_steps: int | None
    epoch: int
    epochs: int | None
    loss: float
    gradient_norm: float
    learning_rate: float
    rows: int
    seconds: float


class EpochEnd(NamedTuple):
    """An epoch's evaluation; `metrics` is empty without an eval split."""

    step: int
    epoch: int
    loss: float
    metrics: dict[str, float]


class FitResult(NamedTuple):
    """How training ended.

    Attributes:
        stopped: "epochs", "steps" or "early_stopping".
        steps: Optimizer steps taken in all, skipped windows included.
        epochs: Epochs begun.
        metrics: Of the last evaluation, or of the best epoch when its weights were restored.
        skipped: Windows that updated nothing, by reason.
    """

    stopped: str
    steps: int
    epochs: int
    metrics: dict[str, float]
    skipped: dict[str, int]


class Action:
    """Called by the training loop between calls of the graph; does nothing by itself."""

    def on_loop(self, progress: LoopProgress) -> None:
        """After each call of the graph."""

    def on_epoch(self, end: EpochEnd) -> bool:
        """After each epoch's evaluation; True stops training."""
        return False

    def before_export(self) -> dict[str, float] | None:
        """After the last step; may put other weights into the model and return their metrics."""
        return None

    def on_end(self, result: FitResult) -> None:
        """When everything is done."""

    def variables(self) -> Sequence[tf.Variable]:
        """What a checkpoint must hold for the action to continue."""
        return ()

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold, as JSON."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes back what `state` returned."""


class ProgressLog(Action):
    """Writes one line about every second, with the same as a record for programs to read."""

    def __init__(self, every_seconds: float = 1.0) -> None:
        """Creates the action; `every_seconds` is the least time between two lines."""
        self.every_seconds = every_seconds
        self._last = -math.inf
        self._steps, self._rows, self._seconds = 0, 0, 0.0

    def on_loop(self, progress: LoopProgress) -> None:
        """Logs step, loss, rows per second and time left.

        The first loop also traces the graph: its time says nothing of what the rest will take.
        """
        first = self._last == -math.inf
        if not first:
            self._steps += progress.steps
            self._rows += progress.rows
            self._seconds += progress.seconds
        at_end = progress.step == progress.total_steps
        if time.monotonic() - self._last < self.every_seconds and not at_end:
            return
        rate = self._rows / self._seconds if self._seconds else None
        eta = None
        if progress.total_steps is not None and self._steps:
            eta = (progress.total_steps - progress.step) * self._seconds / self._steps
        self._last = time.monotonic()
        self._steps, self._rows, self._seconds = 0, 0, 0.0
        record = {
            "event": "train",
            "step": progress.step,
            "total_steps": progress.total_steps,
            "epoch": progress.epoch,
            "epochs": progress.epochs,
            "loss": progress.loss,
            "examples_per_second": rate,
            "eta_seconds": eta,
        }
        logging.get_absl_logger().info(
            "step %d/%s loss %.4f%s",
            progress.step,
            progress.total_steps or "?",
            progress.loss,
            "" if rate is None else f" {rate:.0f} examples/s",
            extra={"progress": record},
        )

    def on_epoch(self, end: EpochEnd) -> bool:
        """Logs the evaluation."""
        shown = "  ".join(f"{name} {value:.4f}" for name, value in end.metrics.items())
        if end.metrics:
            logging.get_absl_logger().info(
                "epoch %d eval: %s",
                end.epoch,
                shown,
                extra={"progress": {"event": "eval", "epoch": end.epoch, "metrics": end.metrics}},
            )
        return False

    def on_end(self, result: FitResult) -> None:
        """Logs how training ended."""
        skipped = {reason: count for reason, count in result.skipped.items() if count}
        logging.get_absl_logger().info(
            "training ended by %s after %d steps%s",
            result.stopped,
            result.steps,
            f", windows skipped: {skipped}" if skipped else "",
            extra={
                "progress": {
                    "event": "fit_end",
                    "stopped": result.stopped,
                    "steps": result.steps,
                    "skipped": result.skipped,
                }
            },
        )


class TensorBoardScalars(Action):
    """Writes scalars to `<directory>/train` and `<directory>/eval`."""

    def __init__(self, directory: str) -> None:
        """Creates the writers."""
        self._train = tf.summary.create_file_writer(f"{directory}/train")
        self._eval = tf.summary.create_file_writer(f"{directory}/eval")

    def on_loop(self, progress: LoopProgress) -> None:
        """Writes loss, gradient norm, learning rate and rows per second."""
        with self._train.as_default(step=progress.step):
            tf.summary.scalar("loss", progress.loss)
            tf.summary.scalar("gradient_norm", progress.gradient_norm)
            tf.summary.scalar("learning_rate", progress.learning_rate)
            tf.summary.scalar("examples_per_second", progress.rows / max(progress.seconds, 1e-9))

    def on_epoch(self, end: EpochEnd) -> bool:
        """Writes the evaluation."""
        with self._eval.as_default(step=end.step):
            for name, value in end.metrics.items():
                tf.summary.scalar(name, value)
        return False

    def on_end(self, result: FitResult) -> None:
        """Closes the files."""
        self._train.close()
        self._eval.close()


class EarlyStopping(Action):
    """Stops when a metric of the eval split has not improved for some epochs."""

    def __init__(
        self,
        model: keras.Model,
        *,
        monitor: str = "loss",
        patience_epochs: int = 3,
        mode: str = "auto",
        min_delta: float = 0.0,
        restore_best: bool = True,
    ) -> None:
        """Creates copies of the weights; call it in the strategy's scope.

        Args:
            model: Whose weights are kept, as they are while `on_epoch` is called.
            monitor: "loss" or a metric's name.
            patience_epochs: Epochs without improvement before it stops.
            mode: "min", "max", or "auto": min for losses and errors, else max.
            min_delta: A smaller change is no improvement.
            restore_best: Keep a copy of the best epoch's weights and put it into the model at the
                end; costs the memory of the weights once more.
        """
        if mode == "auto":
            smaller = any(
                part in monitor.lower() for part in ("loss", "error", "entropy", "mse", "mae")
            )
            mode = "min" if smaller else "max"
        self.monitor = monitor
        self.patience_epochs = patience_epochs
        self.mode = mode
        self.min_delta = min_delta
        self._weights = [v.value for v in model.variables if v.name != "seed_generator_state"]
        self._best_weights: list[tf.Variable] = []
        if restore_best:
            self._best_weights = [tf.Variable(w, trainable=False) for w in self._weights]
        self._best = math.nan
        self._best_metrics: dict[str, float] = {}
        self._waited = 0

    def on_epoch(self, end: EpochEnd) -> bool:
        """Compares with the best; True after `patience_epochs` without improvement."""
        if self.monitor not in end.metrics:
            raise ValueError(
                f"trainer.early_stopping.monitor={self.monitor!r} is not evaluated; "
                f"{nearest(self.monitor, end.metrics)}"
            )
        value = end.metrics[self.monitor]
        if is_better(value, self._best, mode=self.mode, min_delta=self.min_delta):
            self._best, self._best_metrics, self._waited = value, dict(end.metrics), 0
            for best, weight in zip(self._best_weights, self._weights, strict=False):
                best.assign(weight)
            return False
        self._waited += 1
        return self._waited >= self.patience_epochs

    def before_export(self) -> dict[str, float] | None:
        """Puts the best epoch's weights into the model."""
        if not self._best_weights or not self._best_metrics:
            return None
        for best, weight in zip(self._best_weights, self._weights, strict=True):
            weight.assign(best)
        return self._best_metrics

    def variables(self) -> Sequence[tf.Variable]:
        """Returns the best weights."""
        return self._best_weights

    def state(self) -> dict[str, Any]:
        """Returns the best value and how long ago it was."""
        best = None if math.isnan(self._best) else self._best
        return {"best": best, "metrics": self._best_metrics, "waited": self._waited}

    def restore(self, state: dict[str, Any]) -> None:
        """Continues where `state` was taken."""
        self._best = math.nan if state["best"] is None else state["best"]
        self._best_metrics, self._waited = state["metrics"], state["waited"]
