"""Callbacks for early stopping, pruning and TensorBoard."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import keras
import tensorflow as tf
from absl import logging

from trainer_module.common.tensors import Json
from trainer_module.common.user_values import Mode, better_mode, is_better
from trainer_module.loop.callback import Callback, EpochEnd, FitResult, LoopProgress
from trainer_module.model.layers import PrunedDense

if TYPE_CHECKING:
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

# Largest delay before scalars are visible in TensorBoard.
_SECONDS_UNTIL_SEEN = 10
_WORSE = 0.005  # of a score; of an error, as a share of it


class EarlyStopping(Callback):
    """Stop when a metric of the eval split has not improved for some epochs; keep the best weights.

    The copy of the best epoch's weights takes as much memory as the weights.
    """

    def __init__(
        self,
        model: keras.Model,
        *,
        monitor: str = "loss",
        patience_epochs: int = 3,
        mode: str = "auto",
        from_step: int = 0,
    ) -> None:
        """Create copies of the weights. Call it in the strategy's scope.

        Args:
            model: The model whose weights are copied during `on_epoch`.
            monitor: "loss" or a metric's name.
            patience_epochs: Epochs without improvement before training stops.
            mode: "min", "max", or "auto" to derive it from the metric's name.
            from_step: Evaluations before this optimizer step do not count. With `Prune`, use the
                `end_step` of the layers: earlier weights are not as sparse.

        Raises:
            ValueError: `mode` is "auto" and the metric's name does not determine it.
        """
        self.monitor = monitor
        self.patience_epochs = patience_epochs
        self.mode: Mode = better_mode(monitor, mode)
        self.from_step = from_step
        self._weights = [v.value for v in model.variables if v.name != "seed_generator_state"]
        self._best_weights = [tf.Variable(w, trainable=False) for w in self._weights]
        self._best = math.nan
        self._best_metrics: dict[str, float] = {}
        self._limit: tuple[str, Mode, float] | None = None
        self._waited = 0
        self._has_warned = False

    def keep_start(self, metrics: dict[str, float]) -> None:
        """Make the weights before the first step, such as a linear model, the first candidate.

        An epoch replaces them if the monitored metric is better and the first other metric is at
        most 0.005 worse: with rare classes, a loss can fall while the AUC falls too. Call it before
        `fit`.

        Args:
            metrics: "loss" and metrics of the eval split with these weights.
        """
        if self.from_step:
            return
        self.on_epoch(EpochEnd(0, 0, math.nan, metrics, {}))
        for name in [name for name in metrics if name not in ("loss", self.monitor)][:1]:
            with contextlib.suppress(ValueError):  # a metric of unknown direction sets no limit
                mode = better_mode(name)
                worse = -_WORSE if mode == "max" else _WORSE * metrics[name]
                self._limit = (name, mode, metrics[name] + worse)

    def on_begin(self) -> None:
        """Reset the count of epochs without improvement at each call of `fit`."""
        self._waited = 0

    def facts(self) -> dict[str, Json]:
        """Return the options."""
        return {
            "monitor": self.monitor,
            "patience_epochs": self.patience_epochs,
            "mode": self.mode,
            "from_step": self.from_step,
        }

    def on_epoch(self, end: EpochEnd) -> bool:
        """Compare with the best value; return True after `patience_epochs` without improvement.

        An undefined metric (NaN) is not an improvement. As long as the metric has never been
        defined, training continues.
        """
        value = end.metric(self.monitor, field="early_stopping.monitor")
        if end.step < self.from_step:
            return False
        if math.isnan(value) and math.isnan(self._best):
            self._warn_undefined(end)
            return False
        improved = is_better(value, self._best, mode=self.mode)
        if improved and self._limit is not None:
            name, mode, limit = self._limit
            improved = not is_better(limit, end.metrics[name], mode=mode)
        if improved:
            self._best, self._best_metrics, self._waited = value, dict(end.metrics), 0
            for best, weight in zip(self._best_weights, self._weights, strict=True):
                best.assign(weight)
            return False
        self._waited += 1
        return self._waited >= self.patience_epochs

    def _warn_undefined(self, end: EpochEnd) -> None:
        if not self._has_warned:
            logging.warning(
                "Early stopping cannot judge epoch %d: %s is undefined (NaN) of the eval rows, as "
                "if all of their labels are of one class. Training continues until it is defined.",
                end.epoch,
                self.monitor,
            )
        self._has_warned = True

    def before_export(self) -> dict[str, float] | None:
        """Restore the best epoch's weights."""
        if not self._best_metrics:
            return None
        for best, weight in zip(self._best_weights, self._weights, strict=True):
            weight.assign(best)
        return self._best_metrics

    def variables(self) -> Sequence[tf.Variable]:
        """Return the best weights."""
        return self._best_weights

    def state(self) -> dict[str, Json]:
        """Return the best value and the number of epochs since."""
        best = None if math.isnan(self._best) else self._best
        counts = {"waited": self._waited, "limit": self._limit}
        return {"best": best, "metrics": self._best_metrics, **counts}

    def restore(self, state: dict[str, Json]) -> None:
        """Restore the output of `state`."""
        self._best = math.nan if state["best"] is None else state["best"]
        self._best_metrics, self._waited = state["metrics"], state["waited"]
        self._limit = state["limit"] and tuple(state["limit"])


class Prune(Callback):
    """Remove the smallest weights of each `PrunedDense` layer by its schedule.

    The loop ends a call of the graph at each step where a mask is due. The state is in the masks,
    which a checkpoint saves with the model.

    Example:
        TrainingLoop(step, data, epochs=3, callbacks=[Prune(model)]).fit()
    """

    def __init__(self, model: keras.Model) -> None:
        """Find the layers; raise ValueError if the model has none, or is not built."""
        self.layers = [each for each in model._flatten_layers() if isinstance(each, PrunedDense)]
        if not self.layers or not all(each.built for each in self.layers):
            raise ValueError(
                f"model={model.name!r} has no built PrunedDense: call it first, or leave Prune out."
            )

    def steps_until_due(self, step: int) -> int | None:
        """Return the steps until the next update of a mask; None after the last one."""
        found = (layer.steps_until_due(step) for layer in self.layers)
        return min((steps for steps in found if steps is not None), default=None)

    def on_loop(self, progress: LoopProgress) -> None:
        """Update the masks that are due."""
        for layer in self.layers:
            layer.prune(progress.step)

    def facts(self) -> dict[str, Json]:
        """Return the schedules, in the order of the layers."""
        return {"schedules": [[x.sparsity, x.begin_step, x.end_step, x.every] for x in self.layers]}


class TensorBoardScalars(Callback):
    """Write scalars to `<directory>/train` and `<directory>/eval`."""

    on_chief_only = True

    def __init__(self, directory: str) -> None:
        """Create the writers.

        Raises:
            ModuleNotFoundError: The package tensorboard is not installed.
        """
        self._train, self._eval = (_writer(f"{directory}/{name}") for name in ("train", "eval"))

    def on_loop(self, progress: LoopProgress) -> None:
        """Write loss, gradient norm, learning rate, rows per second and noise scale."""
        values = {
            "loss": progress.loss,
            "gradient_norm": progress.gradient_norm,
            "learning_rate": progress.learning_rate,
            "examples_per_second": progress.rows / max(progress.seconds, 1e-9),
        }
        if not math.isnan(progress.noise_scale):
            values["gradient_noise_scale"] = progress.noise_scale
        _write(self._train, progress.step, values)

    def on_epoch(self, end: EpochEnd) -> bool:
        """Write the evaluation."""
        _write(self._eval, end.step, end.metrics)
        return False

    def on_end(self, result: FitResult) -> None:
        """Close the files."""
        self._train.close()
        self._eval.close()


def _writer(directory: str) -> EventFileWriter:
    try:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"TensorBoardScalars needs {error.name}, which is not installed: "
            "uv pip install 'tfx-largebatch[tensorboard]', or leave out TensorBoardScalars "
            "(tensorboard: false).",
            name=error.name,
        ) from error
    return EventFileWriter(directory, flush_secs=_SECONDS_UNTIL_SEEN)


def _write(writer: EventFileWriter, step: int, values: dict[str, float]) -> None:
    """Queue all values as one event for the writer's thread; tf.summary takes far longer.

    `simple_value` is the most compact way to write a scalar, a few bytes; TensorBoard reads it,
    too.
    """
    from tensorboard.compat.proto.event_pb2 import Event

    if not values:
        return
    event = Event(wall_time=time.time(), step=step)
    for name, value in values.items():
        event.summary.value.add(tag=name, simple_value=value)
    writer.add_event(event)
