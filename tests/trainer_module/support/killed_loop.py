"""A run that ends itself, and that has everything that keeps state.

A new order for each epoch, dropout, a moving average, the best weights, callbacks of Keras.
"""

from __future__ import annotations

import os
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from trainer_module.loop.callback import Callback
from trainer_module.loop.callbacks import EarlyStopping
from trainer_module.loop.checkpoints import Checkpoints
from trainer_module.loop.evaluation import Evaluation
from trainer_module.loop.training_loop import TrainingLoop
from trainer_module.step.train_step import TrainStep

ROWS = 64
_random = np.random.default_rng(3)
X = _random.normal(size=(ROWS, 4)).astype("float32")
Y = X.sum(axis=1, keepdims=True) + _random.normal(size=(ROWS, 1)).astype("float32")


class EndsAt(Callback):
    """Gets a signal after a step, or an exception in place of SIGKILL."""

    def __init__(self, step, number=None):
        self.step, self.number = step, number

    def on_loop(self, progress):
        if progress.step == self.step and self.number is None:
            raise KeyboardInterrupt
        if progress.step == self.step:
            os.kill(os.getpid(), self.number)


def shuffled():
    """64 rows in batches of 7, in another order in each epoch; the cache keeps what is below it."""
    rows = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(ROWS, seed=4).cache()
    return rows.shuffle(ROWS, seed=5).batch(7)


def parts(strategy=None):
    """A step, and an evaluation of its model."""
    keras.utils.set_random_seed(2)
    strategy = strategy or tf.distribute.get_strategy()
    layers = [keras.layers.Dense(6, "relu"), keras.layers.Dropout(0.2), keras.layers.Dense(1)]
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), *layers])
        optimizer = keras.optimizers.Adam(0.05)
    options = {
        "micro_batch_size": 4,
        "ema_momentum": 0.9,
        "gradient_noise_scale": 2,
        "strategy": strategy,
    }
    step = TrainStep(model, optimizer, "mse", **options)
    held_out = tf.data.Dataset.from_tensor_slices((X, Y)).batch(ROWS)
    return step, Evaluation(model, "mse", held_out, strategy=strategy)


def run(folder, *more, made=None, data=None, epochs=4, **options):
    """Train to the end; return the result and all variables."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    step, evaluate = made or parts()
    with step.strategy.scope():
        stopping = EarlyStopping(step.model, patience_epochs=99)
    plateau = keras.callbacks.ReduceLROnPlateau(patience=0, factor=0.5, min_delta=10.0)
    result = TrainingLoop(
        step,
        shuffled() if data is None else data(),
        epochs=epochs,
        steps_per_loop=1,
        evaluate=evaluate,
        callbacks=[plateau, stopping, *more],
        checkpoints=Checkpoints(f"{folder}/saved", step, every_steps=3, share_of_time=None),
        progress=False,
        **options,
    ).fit()
    kept = (*step.model.variables, *step.optimizer.variables, *step.state())
    return result, [v.numpy() for v in kept]
