"""A training in which the main thread of one worker hangs: `hangs.py PLACE NUMBER`."""

from __future__ import annotations

import json
import os
import sys
import time

from trainer_module import create_strategy

strategy = create_strategy("multi_worker", worker_timeout_seconds=4)

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from trainer_module import Callback, Evaluation, TrainingLoop, TrainStep  # noqa: E402


def hang(here: str, is_time: bool = True) -> None:
    # Not a global value: the workers would differ in their program.
    task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    if is_time and sys.argv[1:] == [here, str(task)]:
        time.sleep(float(os.environ.get("SECONDS_OF_HANG", "600")))


def in_graph(here: str, tensor: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
    """Return the tensor, and hang on the way once `step` is 5."""

    def sleep(value: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        hang(here, int(step) == 5)
        return value

    found = tf.py_function(sleep, [tensor, step], tensor.dtype)
    return tf.ensure_shape(found, tensor.shape)


class Hangs(Callback):
    def on_loop(self, progress):
        hang("callback", progress.step == 3)

    def on_epoch(self, end):
        hang("epoch")
        return False


class Layer(keras.layers.Dense):
    def call(self, inputs, training=False):
        if training:
            inputs = in_graph("compute", inputs, step.step.value())
        return super().call(inputs)


keras.utils.set_random_seed(0)
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), Layer(1)])
    optimizer = keras.optimizers.SGD(0.1)
x = np.random.default_rng(0).normal(size=(100, 4)).astype("float32")
rows = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(20)


def read(here: str) -> tf.data.Dataset:
    """Return rows that stop to come at the third batch."""
    return rows.enumerate(3).map(lambda i, batch: (in_graph(here, batch[0], i), batch[1]))


step = TrainStep(model, optimizer, "mse", micro_batch_size=5, strategy=strategy)
evaluation = Evaluation(model, "mse", read("evaluation"), strategy=strategy)


def evaluate() -> dict[str, float]:
    hang("evaluate")
    return evaluation()


hang("before")
TrainingLoop(
    step,
    read("read"),
    epochs=3,
    steps_per_loop=3,
    evaluate=evaluate,
    callbacks=[Hangs()],
    progress=False,
).fit()
