"""The parts of the wall time against clocks of the test."""

from __future__ import annotations

import math
import time

import keras
import numpy as np
import tensorflow as tf

from trainer_module.loop.callback import Callback
from trainer_module.loop.training_loop import TrainingLoop
from trainer_module.step.train_step import TrainStep

BATCH = np.ones((4, 2), "float32"), np.ones((4, 1), "float32")
READ, EVALUATED = 0.02, 0.1


class Clock(Callback):
    """Keeps the parts of each call, and when the first call began and the last one ended."""

    def __init__(self):
        self.parts, self.began, self.ended = [], math.nan, math.nan

    def on_loop_begin(self):
        if not self.parts:
            self.began = time.monotonic()

    def on_loop(self, progress):
        self.ended = time.monotonic()
        self.parts.append(progress.parts)


def slow_batches():
    for _ in range(4):
        time.sleep(READ)
        yield BATCH


def test_the_parts_add_up_to_the_time_of_the_calls_and_between_them():
    """The evaluation after the last call of a `fit` is in no part, nor what follows it."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    step = TrainStep(model, keras.optimizers.SGD(0.01), "mse", micro_batch_size=4)
    spec = tuple(tf.TensorSpec(array.shape, tf.float32) for array in BATCH)
    loop = TrainingLoop(
        step,
        tf.data.Dataset.from_generator(slow_batches, output_signature=spec),
        epochs=2,
        steps_per_loop=2,
        evaluate=lambda: time.sleep(EVALUATED) or {"loss": 0.0},
        callbacks=[clock := Clock()],
    )
    started = time.monotonic()
    loop.fit()
    total = sum(sum(parts.values()) for parts in clock.parts)
    assert clock.ended - clock.began <= total <= clock.ended - started
    assert all(min(parts.values()) >= 0 for parts in clock.parts)
    assert sum(parts["reading"] for parts in clock.parts) >= 8 * READ
    assert EVALUATED <= sum(parts["other"] for parts in clock.parts) < total - 8 * READ
