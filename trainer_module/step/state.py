"""What a step keeps from window to window: counts, loss scale, averages of variables and noise."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import tensorflow as tf

from trainer_module.common.tensors import Variable
from trainer_module.step.reports import StepReport
from trainer_module.window.micro_batch import upcast_to_float32
from trainer_module.window.update import Update


class StepCounters:
    """Numbers of windows, int64 scalars. Checkpoints have all of them except `consecutive`.

    Attributes:
        step: Windows taken, without failed ones.
        empty: Windows with Σ w = 0, which updated nothing.
        non_finite: Windows skipped because they were not finite.
        loss_scale: Windows skipped because the loss scale was too large.
        consecutive: Windows in a row, up to now, that were skipped because they were not finite.
    """

    def __init__(self) -> None:
        """Create the variables; call it in the strategy's scope."""
        self.step = _counter("step")
        self.empty = _counter("skipped_empty")
        self.non_finite = _counter("skipped_non_finite")
        self.loss_scale = _counter("skipped_loss_scale")
        self.consecutive = _counter("consecutive_skips")

    @property
    def skipped(self) -> dict[str, int]:
        """The number of windows that updated nothing, by reason."""
        return {
            "empty": int(self.empty.numpy()),
            "non_finite": int(self.non_finite.numpy()),
            "loss_scale": int(self.loss_scale.numpy()),
        }

    def state(self) -> list[tf.Variable]:
        """Return the variables to checkpoint, in a fixed order."""
        return [self.step, self.empty, self.non_finite, self.loss_scale]

    def count(
        self,
        report: StepReport,
        update: Update,
        *,
        scale: tf.Tensor | None,
        skips_non_finite: bool,
    ) -> None:
        """Count a window."""
        skipped = tf.logical_and(update.is_rejected, tf.logical_not(report.failed))
        by_scale = tf.constant(False)
        if scale is not None:
            by_scale = tf.logical_and(skipped, scale > 1.0)
        for counter, happened in (
            (self.empty, update.is_empty),
            (self.loss_scale, by_scale),
            (self.non_finite, tf.logical_and(skipped, tf.logical_not(by_scale))),
            (self.step, tf.logical_not(report.failed)),
        ):
            counter.assign_add(tf.cast(happened, tf.int64))
        if skips_non_finite:
            counted = tf.logical_and(update.is_rejected, tf.logical_not(by_scale))
            so_far = self.consecutive.read_value()
            more = so_far + tf.cast(tf.logical_not(report.failed), tf.int64)
            reset = tf.where(update.is_empty, so_far, 0)
            self.consecutive.assign(tf.where(counted, more, reset))


def _counter(name: str) -> tf.Variable:
    return tf.Variable(
        0,
        dtype=tf.int64,
        trainable=False,
        name=name,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )


_INITIAL_SCALE = 2.0**15
_GROW_AFTER = 2000  # finite windows; the interval of Keras' LossScaleOptimizer
_LARGEST = 2.0**24


class LossScale:
    """The scale s that multiplies gradients before float16 rounds them.

    window finite:      after 2000 in a row  s = 2 s     (at most 2**24)
    window not finite:  skip it,             s = s / 2   (at least 1)
    """

    def __init__(self) -> None:
        """Create the variables; call it in the strategy's scope."""
        self.scale = tf.Variable(_INITIAL_SCALE, trainable=False, name="loss_scale")
        self.finite_windows = tf.Variable(0, trainable=False, name="finite_windows")

    def update(self, finite: tf.Tensor) -> None:
        """Update the scale after a window, in cross-replica context."""
        count, scale = self.finite_windows, self.scale
        windows = tf.where(finite, count + 1, tf.zeros_like(count))
        grow = windows >= _GROW_AFTER
        grown = tf.minimum(scale * 2.0, _LARGEST)
        kept = tf.where(grow, grown, tf.convert_to_tensor(scale))
        scale.assign(tf.where(finite, kept, tf.maximum(scale / 2.0, 1.0)))
        count.assign(tf.where(grow, tf.zeros_like(windows), windows))


class MovingAverage:
    """The average ema = m * ema + (1 - m) * variable, which starts at the variable's value.

    Attributes:
        values: One tf.Variable per variable. For 16-bit variables it is float32, because a momentum
            of 0.999 rounds to 1 in bfloat16.
    """

    def __init__(self, variables: Sequence[Variable], momentum: float) -> None:
        """Create the averages; call it in the strategy's scope."""
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


# Weight of the previous windows: the average is over about the last ten measured windows.
_MOMENTUM = 0.9


class NoiseAverage:
    """Exponential moving averages of |G|² and tr Σ (see `window/gradient_sum.py`).

    Attributes:
        values: |G|² and tr Σ, float64 `[2]`. Both averages start at 0 with the same weights, so the
            bias of the start cancels in the quotient.
    """

    def __init__(self, every: int) -> None:
        """Create the variable; call it in the strategy's scope.

        Args:
            every: Number of steps from one measured window to the next.
        """
        self._every = every
        self.values = tf.Variable(
            tf.zeros([2], tf.float64),
            trainable=False,
            name="gradient_noise",
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def is_due(self, step: tf.Tensor) -> tf.Tensor:
        """Return whether to measure the window that follows a number of steps, scalar bool."""
        return tf.equal(step % self._every, 0)

    def update(self, noise: tf.Tensor) -> None:
        """Add the estimates of a window, `[2]`; windows that are not finite are left out."""
        noise = tf.cast(noise, tf.float64)
        previous = self.values.read_value()
        averages = _MOMENTUM * previous + (1 - _MOMENTUM) * noise
        is_known = tf.reduce_all(tf.math.is_finite(noise))
        self.values.assign(tf.where(is_known, averages, previous))

    @property
    def is_known(self) -> bool:
        """Whether a window has been measured."""
        return bool(self.values.numpy().any())

    @property
    def noise_scale(self) -> float:
        """The gradient noise scale in rows, from 0; NaN unless the average of |G|² is above 0."""
        signal, noise = self.values.numpy()
        # The unbiased estimate of tr Σ may be below 0, as for rows that are equal.
        return float(max(noise, 0.0) / signal) if signal > 0 else float("nan")
