"""What one worker of several does for the tests: `checks.py DEVICES CHECK[:ARGUMENT...] ...`.

One launch runs many checks: TensorFlow's start takes longer than most of them.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import files_of_rows
import full_batch
import keras
import numbered_batches
import numpy as np
import tensorflow as tf
from exactness import SELECTION, check
from on_workers import send_to_test

from trainer_module import (
    TrainingLoop,
    TrainStep,
    create_strategy,
    per_example_gradients,
)
from trainer_module.devices.replicas import is_multi_worker, per_replica, replicas_here
from trainer_module.devices.worker_group import Disagreement, current_workers
from trainer_module.loop.evaluation import Evaluation
from trainer_module.model.metrics import create_metric
from trainer_module.step.reports import NonFiniteError

METRICS = ("auc", "f1_score", "mean_squared_error", "r2_score", "precision")


class Same(dict):
    """The strategy of all workers in place of each that a cell names."""

    def __init__(self, strategy):
        super().__init__()
        self.strategy = strategy

    def __missing__(self, name):
        return self.strategy


def matrix(strategy, first: str, step: str):
    """Each STEPth cell of the exactness matrix, from FIRST on."""
    found = {}
    for cell in SELECTION[int(first) :: int(step)]:
        keras.utils.set_random_seed(0)
        found[str(cell)] = None
        try:
            check(dataclasses.replace(cell, strategy="all"), Same(strategy))
        except AssertionError as error:
            found[str(cell)] = str(error)
    return found


def examples_of(folder: str, strategy):
    examples = files_of_rows.examples(Path(folder))
    if is_multi_worker(strategy):
        examples = dataclasses.replace(examples, replicas=replicas_here(strategy))
    return examples


def seen(strategy, folder: str, batch: str, buffer: str):
    """The rows of each replica of this worker, by epoch and global batch."""
    batches = examples_of(folder, strategy).shuffled_batches(
        int(batch), shuffle_buffer_rows=int(buffer), seed=3, rows=101
    )
    return [
        [
            [part.numpy().tolist() for part in strategy.experimental_local_results(ids)]
            for features, _ in (per_replica(each, strategy) for each in batches(epoch))
            for ids in [features["id"]]
        ]
        for epoch in range(2)
    ]


def evaluation(strategy, folder: str):
    """Loss and metrics of a model on rows in ragged batches."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        inputs = keras.Input((files_of_rows.WIDTH,), name="x")
        model = keras.Model({"x": inputs}, keras.layers.Dense(1, activation="sigmoid")(inputs))
        metrics = [create_metric(name, "binary") for name in METRICS]
    batches = examples_of(folder, strategy).narrowed(["x"]).batches(17)
    measure = Evaluation(model, "binary_crossentropy", batches, metrics=metrics, strategy=strategy)
    return [measure(), measure()]


def whole_batches(strategy):
    """A step on batches that each worker has whole: it takes its own part of them."""
    keras.utils.set_random_seed(2)
    with strategy.scope():
        model = full_batch.mlp()
        optimizer = keras.optimizers.Adam(0.05)
    step = TrainStep(model, optimizer, "mse", micro_batch_size=2, strategy=strategy)
    data = [full_batch.batch("mlp", rows, seed) for seed, rows in enumerate((11, 1, 6))]
    data = [tuple(np.asarray(part, "float32") for part in batch) for batch in data]
    specs = tuple(tf.TensorSpec([None, *part.shape[1:]], tf.float32) for part in data[0])
    batches = tf.data.Dataset.from_generator(lambda: iter(data), output_signature=specs)
    result = TrainingLoop(step, batches, epochs=2, progress=False).fit()
    return [[weight.tolist() for weight in model.get_weights()], result.history["loss"]]


def row_gradients(strategy):
    """The gradients of the rows of each replica of this worker, and a sum of those of all rows."""
    keras.utils.set_random_seed(2)
    with strategy.scope():
        model = full_batch.mlp()
    batch = tuple(np.asarray(part, "float32") for part in full_batch.batch("mlp"))
    replicas = strategy.num_replicas_in_sync
    parts = [np.array_split(part, replicas) for part in batch]
    values = [
        strategy.experimental_distribute_values_from_function(
            lambda context, part=part: tf.constant(part[context.replica_id_in_sync_group])
        )
        for part in parts
    ]

    def on_replica(*data):
        options = {"reduce": lambda row: [tf.square(g) for g in row], "over_rows": "mean"}
        return [
            per_example_gradients(model, "mse", *data, chunk_size=2),
            per_example_gradients(model, "mse", *data, chunk_size=2, **options),
        ]

    found = tf.function(lambda *data: strategy.run(on_replica, args=data))(*values)
    return [
        [[part.numpy().tolist() for part in strategy.experimental_local_results(t)] for t in each]
        for each in found
    ]


def not_finite(strategy):
    """The error of a window whose last row is NaN."""
    with strategy.scope():
        model = full_batch.mlp()
        optimizer = keras.optimizers.SGD(0.05)
    step = TrainStep(model, optimizer, "mse", micro_batch_size=2, strategy=strategy)
    features, labels, _ = full_batch.batch("mlp", 8)
    features[-1] = np.nan
    try:
        step((features, labels))
    except NonFiniteError as error:
        return str(error)
    return None


def other_mean(strategy):
    """What each worker says where the data of one subtracts another variable's value."""
    mean = tf.Variable(float(current_workers().number))
    step = TrainStep(
        *numbered_batches.linear(0.1, strategy), "mse", micro_batch_size=1, strategy=strategy
    )
    data = numbered_batches.known(2).map(lambda x, y: (x - mean, y))
    try:
        TrainingLoop(step, data, epochs=1, progress=False).fit()
    except Disagreement as error:
        return str(error)
    return None


_ALL = (matrix, seen, evaluation, whole_batches, not_finite, row_gradients, other_mean)
CHECKS: dict[str, Callable] = {each.__name__: each for each in _ALL}


def done(name: str, strategy):
    """Run a check by its name and arguments: `matrix:0:2`."""
    name, *arguments = name.split(":")
    return CHECKS[name](strategy, *arguments)


def main(devices: int, checks: list[str]) -> None:
    strategy = create_strategy("multi_worker", logical_devices=devices)
    send_to_test(["replicas", strategy.num_replicas_in_sync])
    for each in checks:
        send_to_test([each, done(each, strategy)])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
