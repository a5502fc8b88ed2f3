"""A learning rate that follows a schedule of the global batch size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import keras
import tensorflow as tf

from trainer_module.checks.compiled import each_optimizer
from trainer_module.common.tensors import Json
from trainer_module.options.batch_sizes import BatchSizes, check_batch_sizes

_ScalingRule: TypeAlias = Literal["linear", "sqrt"]
_EXPONENTS = {"linear": 1.0, "sqrt": 0.5}


@keras.saving.register_keras_serializable(package="trainer_module")
class ScaledLearningRate(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate or schedule, multiplied by a power of size / size at step 0.

        rate(t) * (size(t) / size(0)) ** p      p = 1 (linear) or 1/2 (sqrt)

    `linear` keeps rate / size, as suits SGD while batches are small (Goyal et al., 2017,
    "Accurate, Large Minibatch SGD"). `sqrt` is the usual rule for Adam (Malladi et al., 2022, "On
    the SDEs and Scaling Rules for Adaptive Gradient Algorithms").

    A `TrainStep` makes the factor follow its number of windows, as the sizes do. Otherwise, it
    follows the optimizer's iterations, which skipped windows do not count.

    Example:
        sizes = {0: 256, 1000: 1024}
        optimizer = keras.optimizers.SGD(ScaledLearningRate(0.1, sizes, "linear"))
        step = TrainStep(model, optimizer, "mse", micro_batch_size=64)
        TrainingLoop(step, (x, y), batch_size=sizes, epochs=10).fit()
    """

    def __init__(
        self,
        rate: float | keras.optimizers.schedules.LearningRateSchedule,
        batch_sizes: Mapping[int, int],
        rule: _ScalingRule,
    ) -> None:
        """Check the arguments.

        Args:
            rate: Learning rate at the size of step 0, or a schedule of it.
            batch_sizes: Rows of a global batch by the optimizer step from which they hold.
            rule: "linear" or "sqrt".

        Raises:
            ValueError: Another rule, or the sizes are not a schedule.
        """
        if rule not in _EXPONENTS:
            raise ValueError(f"rule={rule!r}: use one of {', '.join(_EXPONENTS)}.")
        try:
            sizes = BatchSizes.of(check_batch_sizes(batch_sizes))
        except ValueError as error:
            raise ValueError(f"batch_sizes={batch_sizes!r}: {error}.") from None
        self.rate = rate
        self.sizes = sizes
        self.rule: _ScalingRule = rule
        self._step: tf.Variable | None = None

    def __call__(self, iterations: tf.Tensor) -> tf.Tensor:
        """Return the rate of the update after so many, float32 scalar."""
        rate = self.rate(iterations) if callable(self.rate) else self.rate
        step = iterations if self._step is None else self._step.read_value()
        rows = [size / self.sizes.rows[0] for size in self.sizes.rows]
        factors = tf.constant([ratio ** _EXPONENTS[self.rule] for ratio in rows], tf.float32)
        place = tf.searchsorted(
            tf.constant(self.sizes.steps, tf.int64),
            keras.ops.cast(step, "int64")[tf.newaxis],
            side="right",
        )
        return keras.ops.cast(rate, "float32") * factors[place[0] - 1]

    def follow(self, step: tf.Variable) -> None:
        """Take the factor of this number of windows, int64 scalar, instead of the iterations."""
        self._step = step

    def get_config(self) -> dict[str, Json]:
        """Return the arguments, as JSON."""
        rate = self.rate
        return {
            "rate": keras.saving.serialize_keras_object(rate) if callable(rate) else rate,
            "batch_sizes": {
                str(step): rows
                for step, rows in zip(self.sizes.steps, self.sizes.rows, strict=True)
            },
            "rule": self.rule,
        }

    @classmethod
    def from_config(cls, config: dict[str, Json]) -> ScaledLearningRate:
        """Return the rate with these arguments."""
        rate = config["rate"]
        if isinstance(rate, dict):
            rate = keras.saving.deserialize_keras_object(rate)
        return cls(rate, config["batch_sizes"], config["rule"])


def follow_steps(optimizer: keras.optimizers.Optimizer, step: tf.Variable) -> None:
    """Make the scaled learning rates of an optimizer follow the number of windows."""
    for each in each_optimizer(optimizer):
        rate = getattr(each, "_learning_rate", None)
        if isinstance(rate, ScaledLearningRate):
            rate.follow(step)
