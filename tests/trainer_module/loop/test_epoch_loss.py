"""The loss of an epoch: Σ w l / Σ w over its rows, however the loop was cut into calls.

Reference: NumPy in float64, for a model that stays as it is (learning rate 0). Tolerance 1e-12; two
cuts of one epoch give the same bits.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module.loop.callback import Callback
from trainer_module.loop.training_loop import TrainingLoop
from trainer_module.step.train_step import TrainStep


class Losses(Callback):
    def __init__(self):
        self.losses = []

    def on_epoch(self, end):
        self.losses.append(end.loss)
        return False


def test_weights_count_whatever_the_steps_per_loop(float64):
    random = np.random.default_rng(0)
    features, labels = random.normal(size=(23, 5)), random.normal(size=(23, 1))
    weights = random.uniform(0.0, 9.0, 23) ** 3
    data = tf.data.Dataset.from_tensor_slices((features, labels, weights)).batch(5)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
    step = TrainStep(model, keras.optimizers.SGD(0.0), "mse", micro_batch_size=2)
    found = {}
    for steps_per_loop in (1, 3, 5):
        losses = Losses()
        TrainingLoop(step, data, epochs=2, steps_per_loop=steps_per_loop, callbacks=[losses]).fit()
        found[steps_per_loop] = losses.losses
    squares = ((labels - np.asarray(model(features))) ** 2)[:, 0]
    expected = np.average(squares, weights=weights)
    assert found[1] == pytest.approx([expected, expected], rel=1e-12)
    assert found[1] == found[3] == found[5]
