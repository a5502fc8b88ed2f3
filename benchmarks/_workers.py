"""One worker's part of benchmarks/workers.py: `_workers.py STRATEGY DEVICES STEPS`.

A program for `trainer_module.launch`, also where there is one process.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer_module import TrainStep, create_strategy, sum_over_replicas
from trainer_module.window.gradient_sum import GradientSum

BATCH = 256
MODELS = {"small": (32, (64, 64)), "large": (512, (2048, 2048))}
ROUNDS = 5
MARK = "measured: "


def main(name: str, devices: int, steps: int) -> None:
    """Prints seconds of a step, and of its reduction alone, for each model."""
    strategy = create_strategy(name, logical_devices=devices)
    found = {}
    for model, (columns, units) in MODELS.items():
        step = _step(strategy, columns, units)
        count = steps if model == "small" else max(2, steps // 20)
        batches = iter(_batches(columns).repeat())
        reduction = _reduction(strategy, step)
        found[model] = {
            "step": _seconds(lambda n, s=step, b=batches: s.run(b, n), count),
            "reduction": _seconds(lambda n, r=reduction: r(tf.constant(n)), count),
            "parameters": step.model.count_params(),
        }
    print(MARK + json.dumps(found), flush=True)


def _step(strategy: tf.distribute.Strategy, columns: int, units: tuple[int, ...]) -> TrainStep:
    with strategy.scope():
        hidden: list[Any] = [keras.layers.Dense(n, activation="relu") for n in units]
        model = keras.Sequential([keras.Input((columns,)), *hidden, keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(1e-3)
    return TrainStep(
        model,
        optimizer,
        "mean_squared_error",
        micro_batch_size=BATCH,
        strategy=strategy,
        expected_rows=BATCH,
    )


def _batches(columns: int) -> tf.data.Dataset:
    random = np.random.default_rng(0)
    x = random.normal(size=(BATCH, columns)).astype("float32")
    return tf.data.Dataset.from_tensors((x, x[:, :1]))


def _reduction(strategy: tf.distribute.Strategy, step: TrainStep) -> Callable[[tf.Tensor], Any]:
    """Returns a function that sums what a window does over the replicas, so many times."""

    def on_replica(carried: tf.Tensor) -> tf.Tensor:
        zero = carried * 0
        values = [tf.zeros(v.shape) + zero for v in step.model.trainable_variables]
        return sum_over_replicas(GradientSum(zero, zero, zero, values)).gradients[-1][0]

    def body(k: tf.Tensor, carried: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        sums = strategy.run(on_replica, args=(carried,))
        return k + 1, strategy.experimental_local_results(sums)[0]

    @tf.function(autograph=False)
    def times(n: tf.Tensor) -> Any:
        start = (tf.constant(0), tf.constant(0.0))
        return tf.while_loop(lambda k, _: k < n, body, start, parallel_iterations=1)

    return times


def _seconds(run: Callable[[int], Any], count: int) -> float:
    run(1)
    found = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        run(count)
        found.append((time.perf_counter() - started) / count)
    return statistics.median(found)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
