"""A run that kills itself: `python killed_loop.py FOLDER STEP`, and the same in this process.

It has everything that keeps state: a new order for each epoch, dropout, Keras callbacks.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from trainer_module.loop.callbacks import Callback
from trainer_module.loop.checkpoints import Checkpoints
from trainer_module.loop.evaluation import Evaluation
from trainer_module.loop.training_loop import TrainingLoop
from trainer_module.step.train_step import TrainStep

ROWS = 64
_random = np.random.default_rng(3)
X = _random.normal(size=(ROWS, 4)).astype("float32")
Y = X.sum(axis=1, keepdims=True) + _random.normal(size=(ROWS, 1)).astype("float32")


class KillAt(Callback):
    def __init__(self, step):
        self.step = step

    def on_loop(self, progress):
        if progress.step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def shuffled():
    """64 rows in batches of 7, in another order in each epoch; the cache keeps what is below it."""
    rows = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(ROWS, seed=4).cache()
    return rows.shuffle(ROWS, seed=5).batch(7)


def parts():
    """A step, and an evaluation of its model."""
    keras.utils.set_random_seed(2)
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(6, "relu"), keras.layers.Dropout(0.2)]
    )
    model.add(keras.layers.Dense(1))
    step = TrainStep(model, keras.optimizers.Adam(0.05), "mse", micro_batch_size=4)
    held_out = tf.data.Dataset.from_tensor_slices((X, Y)).batch(ROWS)
    return step, Evaluation(model, "mse", held_out)


def build(folder, kill_at=-1, *, epochs=4, made=None):
    step, evaluate = made or parts()
    keras.utils.set_random_seed(2)  # the order of the rows depends on it
    callbacks = [
        keras.callbacks.ReduceLROnPlateau(patience=0, factor=0.5, min_delta=10.0),
        keras.callbacks.CSVLogger(f"{folder}/epochs.csv"),
        keras.callbacks.EarlyStopping(patience=99, restore_best_weights=True),
    ]
    return TrainingLoop(
        step,
        shuffled(),
        epochs=epochs,
        steps_per_loop=1,
        evaluate=evaluate,
        callbacks=[*callbacks, KillAt(kill_at)],
        checkpoints=Checkpoints(f"{folder}/saved", step, every_steps=3, share_of_time=None),
        progress=False,
    )


def run(folder, kill_at=-1, **options):
    """Returns the result and all variables."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    loop = build(folder, kill_at, **options)
    result = loop.fit()
    own = loop.train_step
    kept = (*own.model.variables, *own.optimizer.variables, *own.state())
    return result, [v.numpy() for v in kept]


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]))
