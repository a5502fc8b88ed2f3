"""Windows with parameter servers, many at once; tests in one process have their numbers.

`windows_on_servers.py BACK`: the test makes the file BACK when the worker that it killed is there
again.
"""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from on_workers import send_to_test

from trainer_module import ParameterServerStep, TrainingLoop, create_strategy
from trainer_module.model.layers import PackedEmbedding

ROWS = (12, 7, 11, 1)
SCHEDULE = keras.optimizers.schedules.CosineDecay(0.02, 5000)


def model_and_optimizer():
    """5 numbers, and 3 ids of which the first and the last share their embeddings -> 1 value."""
    keras.utils.set_random_seed(0)
    layers = keras.layers
    x, ids = keras.Input((5,)), keras.Input((3,), dtype="int64")
    dense = layers.Dense(16, activation="tanh", kernel_regularizer="l2", activity_regularizer="l2")(
        x
    )
    embedded = PackedEmbedding([4, 3, 4], 2, starts=[0, 4, 0])(ids)
    hidden = layers.Dropout(0.2, seed=1)(layers.Concatenate()([dense, embedded]))
    model = keras.Model((x, ids), layers.Dense(1, kernel_constraint="non_neg")(hidden))
    return model, keras.optimizers.AdamW(SCHEDULE)


def pull_to_zero(gradients, variables, step):
    """Read what differs between workers and servers: the variables, and the step's number."""
    share = 0.01 / (1.0 + tf.cast(step, tf.float32))
    return [g + share * v.value for g, v in zip(gradients, variables, strict=True)]


def batches():
    random = np.random.default_rng(0)
    for rows in itertools.cycle(ROWS):
        x = random.normal(size=(rows, 5)).astype("float32")
        labels, weights = np.abs(x.sum(1, keepdims=True)), random.uniform(size=rows)
        yield (x, random.integers(0, (4, 3, 4), (rows, 3))), labels, weights.astype("float32")


def dataset():
    x, labels, weights = (tf.TensorSpec([None, *shape], tf.float32) for shape in ((5,), (1,), ()))
    specs = ((x, tf.TensorSpec([None, 3], tf.int64)), labels, weights)
    return tf.data.Dataset.from_generator(batches, output_signature=specs)


def main(back: str) -> None:
    send_to_test(["pid", os.getpid()])
    strategy = create_strategy("auto", start_timeout_seconds=90)
    options = {"micro_batch_size": 4, "clip_norm": 0.5, "transforms": [pull_to_zero]}
    step = ParameterServerStep(
        *model_and_optimizer(),
        "mse",
        cluster=strategy,
        **options,
    )
    ours = iter(dataset())
    for _ in range(8):
        step.run(ours, 1)
    send_to_test(["kill", None])
    rows = 0
    loops = 0
    while not Path(back).exists() or loops < 3:
        rows += step.run(ours, 40).rows
        loops += 1
    step.run(ours, 100)
    steps = 8 + 40 * loops + 100
    send_to_test(["taken", [int(step.step.numpy()), int(step.optimizer.iterations.numpy()), steps]])
    learning_rate = float(step.optimizer.learning_rate)
    send_to_test(["learning_rate", [learning_rate, float(SCHEDULE(steps))]])
    # A generator without end, whose length no one knows.
    result = TrainingLoop(step, dataset(), epochs=3, steps_per_epoch=4, progress=False).fit()
    send_to_test(["epochs", [result.epochs, result.steps - steps]])


if __name__ == "__main__":
    main(*sys.argv[1:])
