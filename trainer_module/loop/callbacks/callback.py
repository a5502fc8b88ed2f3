"""The base class of callbacks, and the records that they receive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from shared_core.nearest import nearest


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
    """An epoch's evaluation.

    Attributes:
        step: Optimizer steps taken in all.
        epoch: Epochs ended.
        loss: Mean loss of the epoch's windows, in training.
        metrics: "loss" and metrics of the eval split; empty without one.
        logs: What goes into the history: "loss" is that of training, "val_" stands before the
            metrics. Callbacks of Keras add to it, for the history and for those after them.
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
            field: Where the user named it, for the error message.

        Raises:
            ValueError: It is not evaluated.
        """
        if name not in self.metrics:
            raise ValueError(f"{field}={name!r} is not evaluated; {nearest(name, self.metrics)}")
        return self.metrics[name]


class FitResult(NamedTuple):
    """How training ended.

    Attributes:
        stopped: "epochs", "steps", or "early_stopping" where a callback asked for the end.
        steps: Optimizer steps taken in all, skipped windows included.
        epochs: Epochs begun.
        metrics: Of the last evaluation, or of the best epoch when its weights were restored.
        skipped: Windows that updated nothing, by reason.
        history: As that of Keras: {"loss": [0.7, 0.6], "val_loss": [...], "val_auc": [...]}, a
            value for each epoch of the call of `fit`, those before a kill included; "loss" is that
            of training, "val_" stands before what was evaluated, and callbacks of Keras add theirs
            ("learning_rate").
    """

    stopped: str
    steps: int
    epochs: int
    metrics: dict[str, float]
    skipped: dict[str, int]
    history: dict[str, list[float]]


class Callback:
    """Called by the training loop between calls of the graph; the base class does nothing.

    On several workers each has the same callbacks, so that all decide alike, and those that write
    are called on the chief alone.

    Attributes:
        on_chief_only: Whether it writes, and neither stops training nor changes a weight.
    """

    on_chief_only: bool = False

    def on_begin(self) -> None:
        """At the beginning of each `fit`; `restore` follows where a checkpoint is there."""

    def on_epoch_begin(self, epoch: int) -> None:
        """Before the first step of an epoch, from 1; not where a run continues within it."""

    def on_loop_begin(self) -> None:
        """Before each call of the graph."""

    def on_loop(self, progress: LoopProgress) -> bool | None:
        """After each call of the graph; True stops training."""

    def on_epoch(self, end: EpochEnd) -> bool:
        """After each epoch's evaluation; True stops training."""
        return False

    def before_export(self) -> dict[str, float] | None:
        """After the last step; may put other weights into the model and return their metrics."""
        return None

    def on_end(self, result: FitResult) -> None:
        """When everything is done."""

    def facts(self) -> dict[str, Any]:
        """What of the callback decides where the run ends, as JSON: its options."""
        return {}

    def variables(self) -> Sequence[tf.Variable]:
        """What a checkpoint must hold for the callback to continue."""
        return ()

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold, as JSON."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what `state` returned."""
