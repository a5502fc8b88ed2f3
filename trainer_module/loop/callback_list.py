"""Call the callbacks of a loop together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

from trainer_module.common.tensors import Json
from trainer_module.devices.main_thread import doing
from trainer_module.devices.worker_group import WorkerGroup
from trainer_module.loop.callback import Callback
from trainer_module.loop.keras_callback import KerasCallback
from trainer_module.loop.progress_log import ProgressLog
from trainer_module.step.reports import Step

AnyCallback = Callback | keras.callbacks.Callback


class CallbackList:
    """Call callbacks in order; call those that only write on the chief alone."""

    def __init__(self, callbacks: Sequence[Callback], workers: WorkerGroup) -> None:
        """Create the list of this worker's callbacks."""
        self.all = list(callbacks)
        self.called = [each for each in self.all if workers.is_chief or not each.on_chief_only]
        self._workers = workers

    def call(self, method: str, *arguments: object) -> list[Any]:
        """Call a method of each callback, and return what they return."""
        return [self._call(callback, method, *arguments) for callback in self.called]

    def _call(self, callback: Callback, method: str, *arguments: object) -> Any:
        own = callback.callback if isinstance(callback, KerasCallback) else callback
        with doing(f"in callback {type(own).__name__}.{method}"):
            return getattr(callback, method)(*arguments)

    def steps_until_due(self, step: int) -> int | None:
        """Return after how many steps the next call of the graph must end; None: any number.

        It asks callbacks of the chief on all workers, which have to take the same steps.
        """
        found = (callback.steps_until_due(step) for callback in self.all)
        return min((steps for steps in found if steps is not None), default=None)

    def before_export(self) -> dict[str, float] | None:
        """Return the metrics of the first callback that replaces the weights; None without one."""
        restored = (self._call(callback, "before_export") for callback in self.called)
        return next((metrics for metrics in restored if metrics is not None), None)

    @property
    def may_change_weights(self) -> bool:
        """Whether a callback may replace the model's weights at the end."""
        return any(type(each).before_export is not Callback.before_export for each in self.all)

    def variables(self) -> list[tf.Variable]:
        """Return the variables that a checkpoint saves for the callbacks."""
        return [variable for callback in self.all for variable in callback.variables()]

    def states(self) -> list[list[Json]]:
        """Return class name and state of each callback that has a state, as JSON."""
        return [[name, callback.state()] for name, callback in self._stateful()]

    def stateful_names(self) -> list[str]:
        """Return the classes of callbacks with a state; others may differ after a restart."""
        return [name for name, _ in self._stateful()]

    def restore(self, states: Sequence[Sequence[Json]]) -> None:
        """Restore the output of `states`."""
        for (_, callback), (_, state) in zip(self._stateful(), states, strict=True):
            callback.restore(state)

    def _stateful(self) -> list[tuple[str, Callback]]:
        return [
            (type(each).__name__, each)
            for each in self.all
            if type(each).state is not Callback.state
        ]


def as_callbacks(
    callbacks: Sequence[AnyCallback] | AnyCallback,
    train_step: Step,
    *,
    metrics: Sequence[str] | None,
    epochs: int | None,
    progress: bool,
) -> list[Callback]:
    """Return callbacks of the loop; wrap Keras callbacks.

    Raises:
        ValueError: An object is not a callback, or a callback has no effect in this loop.
    """
    found: list[Callback] = []
    for callback in callbacks if isinstance(callbacks, Iterable) else [callbacks]:
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
