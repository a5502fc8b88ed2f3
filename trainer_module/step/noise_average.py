"""Average the noise estimates of windows; their quotient is the gradient noise scale."""

from __future__ import annotations

import tensorflow as tf

# Weight of the previous windows: the average is over about the last ten measured windows.
_MOMENTUM = 0.9


class NoiseAverage:
    """Exponential moving averages of |G|² and tr Σ (see `window/noise_scale.py`).

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
