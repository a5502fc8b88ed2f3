"""Batches that a step could misread in silence are refused, with what to do instead.

What is said of a class or an id that the model does not have, wherever it turns up.
"""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import TrainStep, accumulate_gradients, create_strategy, per_example_gradients
from trainer_module.checks.batch import (
    check_batch,
)
from trainer_module.loop.evaluation import Evaluation

X, Y, W = np.zeros((4, 5)), np.zeros((4, 1)), np.zeros(4)


def test_batches_with_inconsistent_rows_are_rejected():
    for batch, message in [
        ((X, Y[:1]), "labels have 1 rows where other tensors of the batch have 4"),
        ((X[:1], Y), "labels have 4 rows where other tensors of the batch have 1"),
        (({"a": X, "b": X[:2]}, Y), "features have 2 rows"),
        ((X, Y, W[:1]), "sample_weight have 1 rows"),
        ((X, Y, np.float32(1)), "sample_weight hold a single number, which has no rows"),
        ((X.tolist(), Y), r"features hold a single number.*np.asarray"),
        ((tf.ragged.constant([[1], [2, 3]]), Y), r"RaggedTensor.*to_tensor\(\)"),
        ((tf.sparse.from_dense(X), Y), r"SparseTensor.*tf.sparse.to_dense"),
        ((tf.TensorSpec(None), Y), "unknown rank"),
    ]:
        with pytest.raises(ValueError, match=message):
            check_batch(*batch)


def test_train_step_checks_rows_before_and_during_a_step():
    """Pitfall: one label for all rows would broadcast, and labels too many would be dropped."""
    model, optimizer = full_batch.mlp(), keras.optimizers.SGD(0.1)
    step = TrainStep(model, optimizer, "mse", micro_batch_size=64)
    features, labels, _ = full_batch.batch("mlp")
    with pytest.raises(ValueError, match="labels have 1 rows"):
        step((features, labels[:1]))
    rows = tf.data.Dataset.from_tensor_slices
    for wrong in (5, 12):
        batches = tf.data.Dataset.zip(
            (rows(features).batch(11), rows(labels).repeat().batch(wrong))
        )
        with pytest.raises(tf.errors.InvalidArgumentError, match="differ in rows"):
            step.run(iter(batches), 1)
    assert int(optimizer.iterations.numpy()) == 0


def test_accumulate_gradients_checks_rows():
    for function, size in [(accumulate_gradients, "micro_batch"), (per_example_gradients, "chunk")]:
        features, labels, _ = map(tf.constant, full_batch.batch("mlp"))
        with pytest.raises(ValueError, match="labels have 5 rows"):
            function(full_batch.mlp(), "mse", features, labels[:5], **{f"{size}_size": 2})


def test_text_features_are_rejected_with_xla():
    for named in [True, False]:
        x = keras.Input((1,), dtype="string", name="company")
        ids = keras.layers.StringLookup(vocabulary=["a", "b"])(x)
        hidden = keras.layers.Flatten()(keras.layers.Embedding(3, 2)(ids))
        inputs = {"company": x} if named else x
        model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
        rows = np.array([["a"], ["b"]], dtype=object)
        features = {"company": tf.constant(rows)} if named else tf.constant(rows)
        batch = features, np.zeros((2, 1), np.float32)
        optimizer = keras.optimizers.SGD()
        TrainStep(model, optimizer, "mse", micro_batch_size=2)(batch)
        step = TrainStep(model, optimizer, "mse", micro_batch_size=2, jit_compile=True)
        which = "feature 'company' is text" if named else "the features are text"
        with pytest.raises(ValueError, match=f'jit_compile=True: {which}.*jit_compile="auto"'):
            step(batch)


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


@pytest.mark.parametrize(
    ("case", "where", "devices"),
    [("class 7", in_step, 2), ("class -1", in_run, 1), ("id 500", in_evaluation, 2)],
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
