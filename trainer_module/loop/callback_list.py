"""Call the callbacks of a loop together, those of Keras too."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from shared_core.nearest import nearest
from trainer_module.checks.compiled import each_optimizer, is_several
from trainer_module.common.fingerprint import to_fingerprint
from trainer_module.common.tensors import Json
from trainer_module.common.user_values import better_mode
from trainer_module.devices.worker_group import WorkerGroup
from trainer_module.loop.callback import Callback, EpochEnd, FitResult, LoopProgress
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
        return [getattr(callback, method)(*arguments) for callback in self.called]

    def steps_until_due(self, step: int) -> int | None:
        """Return after how many steps the next call of the graph must end; None: any number.

        It asks callbacks of the chief on all workers, which have to take the same steps.
        """
        found = (callback.steps_until_due(step) for callback in self.all)
        return min((steps for steps in found if steps is not None), default=None)

    def before_export(self) -> dict[str, float] | None:
        """Return the metrics of the first callback that replaces the weights; None without one."""
        restored = (callback.before_export() for callback in self.called)
        return next((metrics for metrics in restored if metrics is not None), None)

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
    """Return callbacks of the loop; wrap Keras callbacks."""
    found: list[Callback] = []
    for callback in callbacks if isinstance(callbacks, Iterable) else [callbacks]:
        if isinstance(callback, keras.callbacks.Callback):
            callback = _KerasCallback(callback, train_step, metrics=metrics, epochs=epochs)
        if not isinstance(callback, Callback):
            raise ValueError(
                f"callbacks: {type(callback).__name__} is neither a Callback of this loop nor "
                "one of Keras."
            )
        found.append(callback)
    if progress and not any(isinstance(callback, ProgressLog) for callback in found):
        found.append(ProgressLog())
    return found


# Keras callbacks that do not work in this loop, and the replacement for each.
_REPLACEMENTS = {
    "BackupAndRestore": "give checkpoints=Checkpoints(folder, step)",
    "CallbackList": "give its callbacks one by one",
    "CSVLogger": "write pandas.DataFrame(result.history).to_csv(path) after fit",
    "OrbaxCheckpoint": "give checkpoints=Checkpoints(folder, step)",
    "ProgbarLogger": "progress is shown without it",
    "SwapEMAWeights": "give TrainStep ema_momentum=; evaluations and exports use the average",
    "TensorBoard": "use trainer_module.TensorBoardScalars(folder)",
}
_NEVER_CALLED = (
    *("on_test_begin", "on_test_end", "on_test_batch_begin", "on_test_batch_end"),
    *("on_predict_begin", "on_predict_end", "on_predict_batch_begin", "on_predict_batch_end"),
)
_OBSERVERS = (
    keras.callbacks.History,
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.RemoteMonitor,
)
_SETS_RATE = (keras.callbacks.ReduceLROnPlateau, keras.callbacks.LearningRateScheduler)


class _KerasCallback(Callback):
    """Call a `keras.callbacks.Callback` at the times `keras.Model.fit` would.

    `logs` hold "loss", and the evaluated metrics with the prefix "val_". Metrics of the training
    rows are not computed. For `on_train_batch_begin` and `on_train_batch_end` a batch is one call
    of the graph: `steps_per_loop` optimizer steps, as with Keras' steps_per_execution.

    Checkpoints save the callback's attributes that are numbers, strings, None, or lists of these. A
    run that was killed resumes with them.
    """

    def __init__(
        self,
        callback: keras.callbacks.Callback,
        train_step: Step,
        *,
        metrics: Sequence[str] | None,
        epochs: int | None = None,
    ) -> None:
        """Give the callback its model."""
        self.callback = callback
        self.on_chief_only = isinstance(callback, _OBSERVERS)
        self.name = type(callback).__name__
        self._check(train_step.optimizer, metrics)
        self._model = _ModelView(train_step.model, train_step.optimizer)
        callback.set_params({"epochs": epochs, "steps": None, "verbose": 0})
        callback.set_model(self._model)
        if getattr(callback, "mode", None) == "auto":
            callback.mode = better_mode(callback.monitor, "auto", field=f"{self.name}: mode")
        if getattr(callback, "monitor_op", 0) is None:
            callback._set_monitor_op()  # only once: it flips the sign of min_delta
        functions = {name: f for name, f in vars(callback).items() if inspect.isroutine(f)}
        self._facts = {
            "class": to_fingerprint(type(callback)),
            **_plain_attributes(vars(callback)),
            **to_fingerprint({k: f for k, f in functions.items() if k != "monitor_op"}),
        }
        self._batch = 0
        self._last: dict[str, float] = {}

    def on_begin(self) -> None:
        """Begin training; reset an earlier request to stop."""
        self._model.stop_training = False
        self.callback.on_train_begin({})

    def on_epoch_begin(self, epoch: int) -> None:
        """Begin an epoch; the callback counts epochs from 0."""
        self._batch = 0
        self.callback.on_epoch_begin(epoch - 1, {})

    def on_loop_begin(self) -> None:
        """Begin a batch."""
        self.callback.on_train_batch_begin(self._batch, {})

    def on_loop(self, progress: LoopProgress) -> bool:
        """End a batch; its number is that of its last step."""
        self._batch += progress.steps
        self.callback.on_train_batch_end(self._batch - 1, {"loss": progress.loss})
        return self._model.stop_training

    def on_epoch(self, end: EpochEnd) -> bool:
        """End an epoch."""
        self.callback.on_epoch_end(end.epoch - 1, end.logs)
        self._last = {name: float(value) for name, value in end.logs.items()}
        return self._model.stop_training

    def on_end(self, result: FitResult) -> None:
        """End training."""
        self.callback.on_train_end(dict(self._last))

    def facts(self) -> dict[str, Json]:
        """Return the plain attributes at creation; empty for callbacks that only observe."""
        return {} if isinstance(self.callback, _OBSERVERS) else self._facts

    def state(self) -> dict[str, Json]:
        """Return the callback's plain attributes."""
        attributes = _plain_attributes(vars(self.callback))
        return {"attributes": attributes, "batch": self._batch, "last": self._last}

    def restore(self, state: dict[str, Json]) -> None:
        """Restore the callback's attributes."""
        for name, value in state["attributes"].items():
            setattr(self.callback, name, value)
        self._batch, self._last = state["batch"], state["last"]

    def _check(self, optimizer: keras.optimizers.Optimizer, metrics: Sequence[str] | None) -> None:
        kinds = [kind.__name__ for kind in type(self.callback).__mro__]
        if found := next((kind for kind in kinds if kind in _REPLACEMENTS), None):
            raise ValueError(
                f"callbacks: keras.callbacks.{found} is not supported: {_REPLACEMENTS[found]}."
            )
        if getattr(self.callback, "restore_best_weights", False):
            raise ValueError(
                f"callbacks: {self.name}(restore_best_weights=True): use trainer_module."
                "EarlyStopping(model), whose weights a checkpoint holds, or leave it out."
            )
        base = keras.callbacks.Callback
        for hook in _NEVER_CALLED:
            own = getattr(type(self.callback), hook) is not getattr(base, hook)
            if own or hook in vars(self.callback):
                raise ValueError(
                    f"callbacks: {self.name} listens to {hook}, which never happens here: "
                    "evaluation is one call. Use on_epoch_end, whose logs have its results as "
                    "val_..."
                )
        if isinstance(self.callback, _SETS_RATE):
            parts = each_optimizer(optimizer)[1:] if is_several(optimizer) else [optimizer]
            if any(isinstance(part._learning_rate, _SCHEDULE) for part in parts):
                raise ValueError(
                    f"callbacks: {self.name} sets the learning rate, and the optimizer has a "
                    "schedule for it: give the optimizer a number, or leave the callback out."
                )
        monitor = getattr(self.callback, "monitor", None)
        watches = getattr(self.callback, "save_best_only", True)
        if monitor is None or metrics is None or not watches or monitor == "loss":
            return
        known = ["loss", *(f"val_{name}" for name in metrics)]
        if monitor.partition("/")[0] not in known:
            raise ValueError(
                f"callbacks: {self.name}(monitor={monitor!r}) watches what is not computed; "
                f"{nearest(monitor, known)}" + ("" if metrics else " (the loop has no evaluate=)")
            )


_SCHEDULE = keras.optimizers.schedules.LearningRateSchedule


class _ModelView:
    """The model as the callback sees it, with the optimizer that `compile` would have set."""

    stop_training: bool

    def __init__(self, model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
        self.__dict__.update(_model=model, optimizer=optimizer, stop_training=False)

    def __getattr__(self, name: str) -> object:
        return getattr(self._model, name)

    def __setattr__(self, name: str, value: object) -> None:
        own = name in ("optimizer", "stop_training")
        setattr(self._model, name, value) if not own else self.__dict__.__setitem__(name, value)


def _plain_attributes(attributes: dict[str, Json]) -> dict[str, Json]:
    found = {name: _number(value) for name, value in attributes.items() if name != "best_weights"}
    return {name: value for name, value in found.items() if _is_plain(value)}


def _number(value: object) -> object:
    is_scalar = isinstance(value, (np.generic, tf.Tensor)) and getattr(value, "ndim", None) == 0
    return np.asarray(value).item() if is_scalar else value


def _is_plain(value: object) -> bool:
    if isinstance(value, list):
        return all(_is_plain(each) for each in value)
    return value is None or isinstance(value, (bool, int, float, str))
