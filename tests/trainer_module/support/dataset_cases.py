"""Datasets that differ by one value, wherever it is: `main` prints their identities.

Each function makes the dataset of a value, the same in each process.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

Case = Callable[[float], tf.data.Dataset]
CASES: dict[str, Case] = {}
COUNT = 300  # above what TensorFlow writes into a graph


def case(make: Case) -> Case:
    CASES[make.__name__] = make
    return make


def numbers() -> tf.data.Dataset:
    return tf.data.Dataset.range(4).map(lambda i: tf.cast(i, tf.float32))


def many(value: float) -> np.ndarray:
    found = np.arange(COUNT, dtype="float32")
    found[-1] = value
    return found


@case
def python_float(value):
    return numbers().map(lambda x: x - value)


@case
def texts_in_a_set(value):
    """Their order in memory differs in each process."""
    return numbers().map(lambda x: x - value if "a" in {"a", "b", "c", "d", "e"} else x)


@case
def large_constant(value):
    mean = tf.constant(many(value))
    return numbers().map(lambda x: x - mean)


@case
def variable(value):
    mean = tf.Variable(value, name="mean")
    return numbers().map(lambda x: x - mean)


@case
def low_precision(value):
    mean = tf.constant(many(100 * value), tf.bfloat16)
    return numbers().map(lambda x: tf.cast(x, tf.bfloat16) - mean)


@case
def text_array(value):
    words = np.array([f"{n}" for n in range(3000)] + [f"{value}"] + ["end"] * 3000)
    return numbers().map(lambda x: tf.convert_to_tensor(words))


@case
def normalization(value):
    layer = keras.layers.Normalization()
    layer.adapt(np.array([[0.0, 1.0], [4.0, value]], "float32"))
    return numbers().map(lambda x: layer(tf.fill([1, 2], x)))


@case
def called_function(value):
    mean = tf.Variable(value)

    @tf.function
    def centred(x):
        return x - mean * value

    return numbers().map(centred)


@case
def operands(value):
    """The same operations in another order."""

    def difference(x):
        return x - 2.0 if value == 1 else 2.0 - x

    return numbers().map(difference)


@case
def in_interleave(value):
    mean = tf.constant(many(value))
    return tf.data.Dataset.range(3).interleave(
        lambda i: tf.data.Dataset.from_tensors(mean).map(lambda x: x + 1.0)
    )


@case
def chosen_part(value):
    return tf.data.Dataset.choose_from_datasets(
        [numbers(), variable(value)], tf.data.Dataset.range(2).repeat(2)
    )


@case
def sampled_weights(value):
    return tf.data.Dataset.sample_from_datasets([numbers()] * 2, [0.5, value], seed=1)


@case
def rows(value):
    return tf.data.Dataset.from_tensor_slices((many(value), many(0)))


def identity(dataset: tf.data.Dataset) -> str:
    from trainer_module.data.dataset_steps import dataset_fingerprint

    return json.dumps(dataset_fingerprint(dataset))


def main(value: float) -> None:
    keras.utils.set_random_seed(0)
    # Other names, numbers of functions and places in memory than in the process compared with.
    held = [tf.Variable(1.0), tf.function(lambda x: x + 1)(tf.constant(1.0)), object()]
    held += [numbers().map(lambda x: x * 3) for _ in range(3)]
    keras.layers.Normalization()
    names = reversed(list(CASES))
    print(json.dumps({name: identity(CASES[name](value)) for name in names}))
    assert held
