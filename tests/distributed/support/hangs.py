"""A training in which worker 1 hangs in a read of its rows, at the third batch."""

from __future__ import annotations

import json
import os
import time

from trainer_module import create_strategy

strategy = create_strategy("multi_worker", worker_timeout_seconds=4)

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from trainer_module import TrainingLoop, TrainStep  # noqa: E402


def hang(number: tf.Tensor) -> tf.Tensor:
    # Not a global value: the workers would differ in their program.
    task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    if task == 1 and int(number) == 2:
        time.sleep(600)
    return number


keras.utils.set_random_seed(0)
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.1)
x = np.random.default_rng(0).normal(size=(100, 4)).astype("float32")
rows = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(20).enumerate()


def read(number: tf.Tensor, batch: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    with tf.control_dependencies([tf.py_function(hang, [number], tf.int64)]):
        return tf.identity(batch[0]), batch[1]


step = TrainStep(model, optimizer, "mse", micro_batch_size=5, strategy=strategy)
TrainingLoop(step, rows.map(read), epochs=3, steps_per_loop=3, progress=False).fit()
