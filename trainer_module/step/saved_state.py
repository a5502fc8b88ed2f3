"""Keep the state that windows change, and restore it."""

from __future__ import annotations

import keras

from trainer_module.step.train_step import TrainStep


class SavedState:
    """The values of model, optimizer and step at construction, in host memory."""

    def __init__(self, step: TrainStep) -> None:
        """Copy the values."""
        self._strategy = step.strategy
        kept = [*step.model.variables, *step.optimizer.variables, *step.state()]
        kept.append(step.consecutive_skips)
        self._variables = [v.value if isinstance(v, keras.Variable) else v for v in kept]
        self._values = [v.numpy() for v in self._variables]

    def restore(self) -> None:
        """Assign the values, bit for bit."""
        with self._strategy.scope():
            for variable, value in zip(self._variables, self._values, strict=True):
                variable.assign(value)
