"""Dynamic loss scaling for float16, with one scale for all replicas, updated once per window."""

from __future__ import annotations

import tensorflow as tf

INITIAL_SCALE = 2.0**15
_GROW_AFTER = 2000  # finite windows; the interval of Keras' LossScaleOptimizer
_LARGEST = 2.0**24


class LossScale:
    """The scale s that multiplies gradients before float16 rounds them.

    window finite:      after 2000 in a row  s = 2 s     (at most 2**24)
    window not finite:  skip it,             s = s / 2   (at least 1)
    """

    def __init__(self) -> None:
        """Create the variables; call it in the strategy's scope."""
        self.scale = tf.Variable(INITIAL_SCALE, trainable=False, name="loss_scale")
        self.finite_windows = tf.Variable(0, trainable=False, name="finite_windows")

    def update(self, finite: tf.Tensor) -> None:
        """Update the scale after a window, in cross-replica context.

        Args:
            finite: Whether the window was finite, scalar bool.
        """
        count, scale = self.finite_windows, self.scale
        windows = tf.where(finite, count + 1, tf.zeros_like(count))
        grow = windows >= _GROW_AFTER
        grown = tf.minimum(scale * 2.0, _LARGEST)
        kept = tf.where(grow, grown, tf.convert_to_tensor(scale))
        scale.assign(tf.where(finite, kept, tf.maximum(scale / 2.0, 1.0)))
        count.assign(tf.where(grow, tf.zeros_like(windows), windows))
