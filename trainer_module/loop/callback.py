"""The base class of callbacks and the records that they receive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from shared_core.nearest import nearest
from trainer_module.common.tensors import Json


class LoopProgress(NamedTuple):
    """Progress of training after one call of the graph.

    Attributes:
        step: Optimizer steps taken in total.
        steps: Optimizer steps of this call.
        total_steps: Steps of the whole run; None if the number of rows is unknown.
        epoch: Current epoch, from 1.
        epochs: Epochs of the whole run; None if the run is limited by steps.
        loss: Mean loss of the call's windows.
        gradient_norm: Gradient norm of the call's last window.
        learning_rate: Learning rate of the call's last window.
        rows: Rows of the call's windows.
        seconds: Duration of the call.
        noise_scale: Gradient noise scale in rows; NaN if it is not measured.
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
    noise_scale: float = float("nan")


class EpochEnd(NamedTuple):
    """The evaluation of an epoch.

    Attributes:
        step: Optimizer steps taken in total.
        epoch: Number of completed epochs.
        loss: Mean training loss of the epoch's windows.
        metrics: "loss" and metrics of the eval split; empty without an eval split.
        logs: Values for the history: "loss" is the training loss, and evaluated metrics have the
            prefix "val_". Keras callbacks add values for the history and for later callbacks.
    """

    step: int
    epoch: int
    loss: float
    metrics: dict[str, float]
    logs: dict[str, float]

    def metric(self, name: str, *, field: str) -> float:
        """Return a metric of the eval split.

        Args:
            name: "loss" or a metric's name.
            field: Name of the user's setting, for the error message.

        Raises:
            ValueError: The metric is not evaluated.
        """
        if name not in self.metrics:
            raise ValueError(f"{field}={name!r} is not evaluated; {nearest(name, self.metrics)}")
        return self.metrics[name]


class FitResult(NamedTuple):
    """The result of a training.

    Attributes:
        stopped: "epochs", "steps", or "early_stopping" if a callback stopped training.
        steps: Optimizer steps taken in total, including skipped windows.
        epochs: Epochs begun.
        metrics: Metrics of the last evaluation, or of the best epoch if its weights were restored.
        skipped: Number of windows that updated nothing, by reason.
        history: As in Keras: {"loss": [0.7, 0.6], "val_loss": [...], "val_auc": [...]}, with one
            value per epoch of the call of `fit`, including those before a kill. "loss" is the
            training loss, evaluated metrics have the prefix "val_", and Keras callbacks add their
            values ("learning_rate").
    """

    stopped: str
    steps: int
    epochs: int
    metrics: dict[str, float]
    skipped: dict[str, int]
    history: dict[str, list[float]]


class Callback:
    """Base class of callbacks, called between calls of the graph. Its methods do nothing.

    All workers have the same callbacks, so that all decide alike. Those with `on_chief_only` are
    called on the chief alone.

    Attributes:
        on_chief_only: Whether the callback only writes, and neither stops training nor changes a
            weight.
    """

    on_chief_only: bool = False

    def on_begin(self) -> None:
        """Run at the start of each `fit`, before `restore` if there is a checkpoint."""

    def on_epoch_begin(self, epoch: int) -> None:
        """Run before the first step of an epoch, from 1; not if a run resumes within the epoch."""

    def on_loop_begin(self) -> None:
        """Run before each call of the graph."""

    def steps_until_due(self, step: int) -> int | None:
        """Return after how many steps a call of the graph must end for this callback; None: any.

        Args:
            step: Optimizer steps taken in total.
        """
        return None

    def on_loop(self, progress: LoopProgress) -> bool | None:
        """Run after each call of the graph. Return True to stop training."""

    def on_epoch(self, end: EpochEnd) -> bool:
        """Run after each epoch's evaluation. Return True to stop training."""
        return False

    def before_export(self) -> dict[str, float] | None:
        """Run after the last step. May replace the model's weights and return their metrics."""
        return None

    def on_end(self, result: FitResult) -> None:
        """Run at the end of each `fit`."""

    def facts(self) -> dict[str, Json]:
        """Return the options that affect the result, as JSON."""
        return {}

    def variables(self) -> Sequence[tf.Variable]:
        """Return the variables that a checkpoint saves for the callback."""
        return ()

    def state(self) -> dict[str, Json]:
        """Return the state that a checkpoint saves for the callback, as JSON."""
        return {}

    def restore(self, state: dict[str, Json]) -> None:
        """Restore the output of `state`."""
