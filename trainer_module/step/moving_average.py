"""Exponential moving average of the variables, updated once per applied window."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import tensorflow as tf

from trainer_module.common.tensors import Variable
from trainer_module.window.micro_batch import upcast_to_float32


class MovingAverage:
    """The average ema = m * ema + (1 - m) * variable, which starts at the variable's value.

    Attributes:
        values: One tf.Variable per variable. For 16-bit variables it is float32, because a momentum
            of 0.999 rounds to 1 in bfloat16.
    """

    def __init__(self, variables: Sequence[Variable], momentum: float) -> None:
        """Create the averages; call it in the strategy's scope.

        Args:
            variables: Keras variables.
            momentum: m, at least 0 and below 1.
        """
        self.momentum = momentum
        self._variables = list(variables)
        self.values = []
        for i, variable in enumerate(self._variables):
            # On the device of the variable, which may be that of a stage.
            with tf.distribute.get_strategy().extended.colocate_vars_with(variable.value):
                value = tf.Variable(
                    upcast_to_float32(variable.value), trainable=False, name=f"ema_{i}"
                )
            self.values.append(value)

    def update(self, strategy: tf.distribute.Strategy) -> None:
        """Update the averages by the variables' current values, in cross-replica context."""

        def assign(average: Variable, value: tf.Tensor) -> None:
            with tf.device(average.device):
                average.assign(
                    self.momentum * average + (1.0 - self.momentum) * upcast_to_float32(value)
                )

        for average, variable in zip(self.values, self._variables, strict=True):
            strategy.extended.update(average, assign, args=(variable.value,), group=False)

    def use(self) -> None:
        """Assign the averages to the variables."""
        for variable, average in zip(self._variables, self.values, strict=True):
            variable.value.assign(tf.cast(average, variable.dtype))

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Assign the averages to the variables in a `with` block, and restore the values after."""
        kept = [variable.value.read_value() for variable in self._variables]
        self.use()
        try:
            yield
        finally:
            for variable, value in zip(self._variables, kept, strict=True):
                variable.value.assign(value)
