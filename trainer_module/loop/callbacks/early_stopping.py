"""Stop training when a metric stops improving."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence

import keras
import tensorflow as tf
from absl import logging

from trainer_module.common.improvement import Mode, better_mode, is_better
from trainer_module.common.json_values import Json
from trainer_module.loop.callbacks.callback import Callback, EpochEnd

_WORSE = 0.005  # of a score; of an error, as a share of it


class EarlyStopping(Callback):
    """Stop when a metric of the eval split has not improved for some epochs."""

    def __init__(
        self,
        model: keras.Model,
        *,
        monitor: str = "loss",
        patience_epochs: int = 3,
        mode: str = "auto",
        min_delta: float = 0.0,
        restore_best: bool = True,
        from_step: int = 0,
    ) -> None:
        """Create copies of the weights. Call it in the strategy's scope.

        Args:
            model: The model whose weights are copied during `on_epoch`.
            monitor: "loss" or a metric's name.
            patience_epochs: Epochs without improvement before training stops.
            mode: "min", "max", or "auto" to derive it from the metric's name.
            min_delta: Smallest change that counts as an improvement.
            restore_best: Whether to keep a copy of the best epoch's weights and restore it at the
                end. The copy takes as much memory as the weights.
            from_step: Evaluations before this optimizer step do not count. With `Prune`, use the
                `end_step` of the layers: earlier weights are not as sparse.

        Raises:
            ValueError: `mode` is "auto" and the metric's name does not determine it.
        """
        self.monitor = monitor
        self.patience_epochs = patience_epochs
        self.mode: Mode = better_mode(monitor, mode)
        self.min_delta = min_delta
        self.from_step = from_step
        self._weights = [v.value for v in model.variables if v.name != "seed_generator_state"]
        self._best_weights: list[tf.Variable] = []
        if restore_best:
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
            "min_delta": self.min_delta,
            "restore_best": bool(self._best_weights),
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
        improved = is_better(value, self._best, mode=self.mode, min_delta=self.min_delta)
        if improved and self._limit is not None:
            name, mode, limit = self._limit
            improved = not is_better(limit, end.metrics[name], mode=mode)
        if improved:
            self._best, self._best_metrics, self._waited = value, dict(end.metrics), 0
            for best, weight in zip(self._best_weights, self._weights, strict=False):
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
        if not self._best_weights or not self._best_metrics:
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
