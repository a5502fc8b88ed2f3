"""Functions that build what TrainStep takes, in modules that a memory probe can import."""

from __future__ import annotations

import keras
import tensorflow as tf


def dense(units=4, rate=0.1, loss="mean_squared_error", optimizer=keras.optimizers.SGD):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(units), keras.layers.Dense(1)])
    return model, optimizer(rate), loss


def huge():
    """A model of one feature whose step needs 2^50 bytes."""
    x = keras.Input((1,))
    hidden = keras.layers.Dense(1)(x)
    large = keras.layers.Lambda(lambda x: x + tf.reduce_sum(tf.fill([1 << 48], x[0, 0])))
    return keras.Model(x, large(hidden)), keras.optimizers.SGD(), "mean_squared_error"
