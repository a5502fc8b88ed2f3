"""The callbacks of a loop, called together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from trainer_module.loop.callbacks.callback import Callback, EpochEnd, FitResult, LoopProgress
from trainer_module.loop.callbacks.keras_callback import KerasCallback
from trainer_module.loop.callbacks.progress_log import ProgressLog
from trainer_module.step.protocol import Step

AnyCallback = Callback | keras.callbacks.Callback


class CallbackList:
    """Calls callbacks in order; of several workers the chief alone calls those that write."""

    def __init__(self, callbacks: Sequence[Callback], *, is_chief: bool) -> None:
        """Take the callbacks of this worker."""
        self.all = list(callbacks)
        self.called = [each for each in self.all if is_chief or not each.on_chief_only]

    def on_begin(self) -> None:
        """Begin a call of `fit`."""
        for callback in self.called:
            callback.on_begin()

    def on_epoch_begin(self, epoch: int) -> None:
        """Begin an epoch, from 1."""
        for callback in self.called:
            callback.on_epoch_begin(epoch)

    def on_loop_begin(self) -> None:
        """Begin a call of the graph."""
        for callback in self.called:
            callback.on_loop_begin()

    def on_loop(self, progress: LoopProgress) -> bool:
        """End a call of the graph; return whether a callback stops training."""
        stops = [callback.on_loop(progress) for callback in self.called]  # each is called
        return any(stops)

    def on_epoch(self, end: EpochEnd) -> bool:
        """End an epoch; return whether a callback stops training."""
        stops = [callback.on_epoch(end) for callback in self.called]
        return any(stops)

    def before_export(self) -> dict[str, float] | None:
        """Return the metrics of the weights that the first callback to do so put in; or None."""
        restored = (callback.before_export() for callback in self.called)
        return next((metrics for metrics in restored if metrics is not None), None)

    def on_end(self, result: FitResult) -> None:
        """End a call of `fit`."""
        for callback in self.called:
            callback.on_end(result)

    @property
    def may_change_weights(self) -> bool:
        """Whether a callback may put other weights into the model at the end."""
        return any(type(each).before_export is not Callback.before_export for each in self.all)

    def variables(self) -> list[tf.Variable]:
        """Return what a checkpoint holds for the callbacks, as variables."""
        return [variable for callback in self.all for variable in callback.variables()]

    def states(self) -> list[list[Any]]:
        """Return class and state of each callback that has one, as JSON."""
        return [[name, callback.state()] for name, callback in self._stateful()]

    def stateful_names(self) -> list[str]:
        """Return the classes of the callbacks that have a state; others may come and go."""
        return [name for name, _ in self._stateful()]

    def restore(self, states: Sequence[Sequence[Any]]) -> None:
        """Give back what `states` returned."""
        for (_, callback), (_, state) in zip(self._stateful(), states, strict=True):
            callback.restore(state)

    def _stateful(self) -> list[tuple[str, Callback]]:
        return [
            (type(each).__name__, each)
            for each in self.all
            if type(each).state is not Callback.state
        ]


def as_callbacks(
    callbacks: Sequence[AnyCallback],
    train_step: Step,
    *,
    metrics: Sequence[str] | None,
    epochs: int | None,
    progress: bool,
) -> list[Callback]:
    """Return callbacks of the loop; a Keras callback is wrapped.

    Args:
        callbacks: As `TrainingLoop` takes them.
        train_step: Whose model and optimizer a Keras callback sees.
        metrics: Names of what is evaluated; None where they are not known.
        epochs: Of the run; None where it is limited by steps.
        progress: Whether to add a `ProgressLog` if there is none.

    Raises:
        ValueError: An object is no callback, or one that can do nothing in this loop.
    """
    found: list[Callback] = []
    for callback in callbacks:
        if isinstance(callback, keras.callbacks.Callback):
            callback = KerasCallback(callback, train_step, metrics=metrics, epochs=epochs)
        if not isinstance(callback, Callback):
            raise ValueError(
                f"callbacks: {type(callback).__name__} is neither a Callback of this loop nor "
                "one of Keras."
            )
        found.append(callback)
    if progress and not any(isinstance(callback, ProgressLog) for callback in found):
        found.append(ProgressLog())
    return found
