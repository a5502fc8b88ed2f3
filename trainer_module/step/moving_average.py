"""The exponential moving average of the variables: one update per window that was applied."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from trainer_module.common.tensors import Variable
from trainer_module.window.micro_batch import upcast_to_float32


class MovingAverage:
    """ema = m * ema + (1 - m) * variable, beginning with the variable.

    Attributes:
        values: One tf.Variable per variable, float32 for 16-bit ones: in bfloat16 a momentum of
            0.999 would be 1.
    """

    def __init__(self, variables: Sequence[Variable], momentum: float) -> None:
        """Creates its variables: call it in the strategy's scope.

        Args:
            variables: Keras variables.
            momentum: m, from 0 to below 1.
        """
        self.momentum = momentum
        self._variables = list(variables)
        self.values = []
        for i, variable in enumerate(self._variables):
            # Each beside its variable, which may be on a stage's device.
            with tf.distribute.get_strategy().extended.colocate_vars_with(variable.value):
                value = tf.Variable(
                    upcast_to_float32(variable.value), trainable=False, name=f"ema_{i}"
                )
            self.values.append(value)

    def update(self, strategy: tf.distribute.Strategy) -> None:
        """Takes the variables' values of now into the average, in cross-replica context."""

        def assign(average: Variable, value: Any) -> None:
            with tf.device(average.device):
                average.assign(
                    self.momentum * average + (1.0 - self.momentum) * upcast_to_float32(value)
                )

        for average, variable in zip(self.values, self._variables, strict=True):
            strategy.extended.update(average, assign, args=(variable.value,), group=False)

    def use(self) -> None:
        """Puts the average into the variables for good."""
        for variable, average in zip(self._variables, self.values, strict=True):
            variable.value.assign(tf.cast(average, variable.dtype))

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Puts the average into the variables for the length of a `with` block."""
        kept = [variable.value.read_value() for variable in self._variables]
        self.use()
        try:
            yield
        finally:
            for variable, value in zip(self._variables, kept, strict=True):
                variable.value.assign(value)
