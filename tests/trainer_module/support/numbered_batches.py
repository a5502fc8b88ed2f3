"""Batches that are known by a number, and which of them `keras.Model.fit` trains on."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from typing import Any

import keras
import numpy as np
import tensorflow as tf


def arrays(count: int, rows: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels, of which rows `rows * n` and following have the number n."""
    features = np.repeat(np.arange(count, dtype="float32"), rows)[:, np.newaxis]
    return features, 0 * features


def known(count: int) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(arrays(count)).batch(2)


def unknown(count: int, *, endless: bool = False) -> tf.data.Dataset:
    def batches():
        for number in itertools.cycle(range(count)) if endless else range(count):
            yield np.full([2, 1], number, "float32"), np.zeros([2, 1], "float32")

    spec = tf.TensorSpec([None, 1], tf.float32)
    return tf.data.Dataset.from_generator(batches, output_signature=(spec, spec))


kinds = {
    "arrays": arrays,
    "known": known,
    "unknown": unknown,
    "filtered": lambda count: known(count).repeat().filter(lambda x, y: True),
    "endless_generator": lambda count: unknown(count, endless=True),
}


def linear(rate: float, strategy: Any = None) -> tuple[keras.Model, keras.optimizers.Optimizer]:
    """A model whose output is its input, as long as the rate is 0."""
    with strategy.scope() if strategy is not None else contextlib.nullcontext():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
        model.set_weights([np.ones([1, 1], "float32")])
        return model, keras.optimizers.Adam(rate)


def mean_output(labels: Any, outputs: Any, sample_weight: Any) -> tuple[Any, Any]:
    """The loss of a batch is its number."""
    rows = tf.cast(tf.shape(outputs)[0], outputs.dtype)
    return tf.reduce_sum(outputs), rows


def by_keras(data: Any, epochs: int, steps_per_epoch: int) -> list[list[int]]:
    """Returns the numbers of the batches that each epoch of `keras.Model.fit` trains on."""
    found: list[list[int]] = []

    class Noting(keras.Model):
        def train_step(self, data):
            found[-1].append(int(data[0][0, 0]))
            return {"loss": 0.0}

    inputs = keras.Input((1,))
    model = Noting(inputs, inputs)
    model.compile("sgd", "mse", run_eagerly=True)
    begin = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: found.append([]))
    options: dict[str, Any] = {"x": data}
    if isinstance(data, tuple):
        options = {"x": data[0], "y": data[1], "batch_size": 2, "shuffle": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the data ran out
        model.fit(
            **options,
            epochs=epochs,
            steps_per_epoch=steps_per_epoch,
            callbacks=[begin],
            verbose=0,
        )
    return found
