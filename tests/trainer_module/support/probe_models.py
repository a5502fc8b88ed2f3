"""Functions that build what TrainStep takes, in modules that a memory probe can import."""

from __future__ import annotations

import keras


def dense(units=4, rate=0.1, loss="mean_squared_error", optimizer=keras.optimizers.SGD):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(units), keras.layers.Dense(1)])
    return model, optimizer(rate), loss
