"""What is said of a class or an id that the model does not have, wherever it turns up."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import TrainStep, create_strategy
from trainer_module.checks.tf_errors import explain_tf_error, translate_tf_errors
from trainer_module.loop.evaluation import Evaluation


def classes(label):
    """A model of three classes, and rows of which the last but one has another label."""
    layers = keras.layers
    model = keras.Sequential([keras.Input((3,)), layers.Dense(3, activation="softmax")])
    rows = (np.ones((8, 3), "float32"), np.array([0, 1, 2, 0, 1, 2, label, 1]))
    return model, "sparse_categorical_crossentropy", rows


def ids(last):
    """A model with a table of 100 rows, and rows of which the last but one has another id."""
    layers = keras.layers
    table = layers.Embedding(100, 4, name="zones")
    model = keras.Sequential([keras.Input((), dtype="int32"), table, layers.Dense(1)])
    rows = (np.array([0, 1, 2, 3, 4, 99, last, 5], "int32"), np.ones((8, 1), "float32"))
    return model, "mean_squared_error", rows


CASES = {
    "class 7": (classes, 7, r"^a label is class 7, and .* of 3 classes, 0 to 2: give the last"),
    "class -1": (classes, -1, r"class -1 \(which a vocabulary .* not have\), .* weight of 0"),
    "id 500": (ids, 500, r"^an id is 500, and the table in '.*zones.*' has 100 rows, .* 0 to 99:"),
}


def in_step(step, rows):
    step(rows)


def in_run(step, rows):
    step.run(iter(tf.data.Dataset.from_tensors(rows)), 1)


def in_evaluation(step, rows):
    batches = tf.data.Dataset.from_tensors(rows)
    Evaluation(step.model, step.loss_fn, batches, strategy=step.strategy)()


# Each case in each place, and each of both on one device and on two.
@pytest.mark.parametrize(
    ("case", "where", "devices"),
    [
        (case, where, 1 + (i + j) % 2)
        for i, case in enumerate(CASES)
        for j, where in enumerate((in_step, in_run, in_evaluation))
    ],
)
def test_errors_are_translated_with_a_fix(case, where, devices):
    make, value, message = CASES[case]
    strategy = create_strategy("mirrored", logical_devices=devices)
    with strategy.scope():
        model, loss, rows = make(value)
        optimizer = keras.optimizers.SGD(0.1)
    step = TrainStep(model, optimizer, loss, micro_batch_size=2, strategy=strategy)
    with pytest.raises(ValueError, match=message):
        where(step, rows)
    assert int(step.step.numpy()) == 0


def test_layer_name_omits_enclosing_loops():
    text = (
        "indices[0,3] = 9 is not in [0, 5)\n\t [[{{node while/cond/while_1/net/zones_1/Gather}}]]"
    )
    assert "the table in 'net/zones_1' has 5 rows" in (explain_tf_error(text) or "")


def test_other_errors_are_unchanged():
    with (
        pytest.raises(tf.errors.InvalidArgumentError, match="Input to reshape"),
        translate_tf_errors(),
    ):
        tf.reshape(tf.ones(2), [1])
