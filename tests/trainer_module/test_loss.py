"""Losses as numerator and denominator, against Keras' own numbers. Tolerance 1e-6 (float32)."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import weighted_loss

random = np.random.default_rng(0)
CASES = {
    "binary_crossentropy": (random.integers(0, 2, (6, 1)), random.uniform(0.1, 0.9, (6, 1))),
    "mean_squared_error": (random.normal(size=(6, 3)), random.normal(size=(6, 3))),
    "sparse_categorical_crossentropy": (
        random.integers(0, 3, (6,)),
        random.dirichlet([1, 1, 1], 6),
    ),
    "huber": (random.normal(size=(6, 1)), random.normal(size=(6, 1))),
}


def sums(loss, labels, outputs, weights=None):
    outputs = tf.constant(outputs, tf.float32)
    if labels.dtype.kind == "f":
        labels = labels.astype("float32")
    return [float(x) for x in loss(tf.constant(labels), outputs, weights)]


@pytest.mark.parametrize("name", CASES)
def test_without_weights_it_is_keras_mean(name):
    labels, outputs = CASES[name]
    numerator, denominator = sums(weighted_loss(name), labels, outputs)
    function = keras.losses.get(name)
    keras_loss = float(np.mean(function(labels.astype("float32"), outputs.astype("float32"))))
    assert denominator == 6
    assert numerator / denominator == pytest.approx(keras_loss, rel=1e-6)


def test_with_weights_it_is_the_weighted_mean_or_keras_mean():
    labels, outputs = CASES["mean_squared_error"]
    weights = np.array([0, 1, 2, 0, 0.5, 3], "float32")
    rows = ((labels - outputs) ** 2).mean(1)
    numerator, denominator = sums(weighted_loss("mse"), labels, outputs, weights)
    assert numerator / denominator == pytest.approx(np.average(rows, weights=weights), rel=1e-6)
    numerator, denominator = sums(weighted_loss("mse", reduction="mean"), labels, outputs, weights)
    keras_loss = keras.losses.MeanSquaredError()(
        labels.astype("float32"), outputs.astype("float32"), sample_weight=weights
    )
    assert numerator / denominator == pytest.approx(float(keras_loss), rel=1e-6)


def test_labels_without_the_last_axis_do_not_broadcast():
    labels, outputs = CASES["huber"]
    assert sums(weighted_loss("huber"), labels[:, 0], outputs) == pytest.approx(
        sums(weighted_loss("huber"), labels, outputs)
    )


def test_a_masked_value_that_is_not_finite_does_not_count():
    labels = np.array([[0.0], [1.0]])
    outputs = np.array([[1.0], [np.inf]])
    assert sums(weighted_loss("mse"), labels, outputs, np.array([1.0, 0.0])) == [1.0, 1.0]


def test_a_loss_for_the_whole_batch_is_refused():
    loss = weighted_loss(lambda labels, outputs: tf.reduce_mean(outputs))
    with pytest.raises(ValueError, match="one number for the whole batch"):
        loss(tf.zeros([2, 1]), tf.zeros([2, 1]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "mse", "reduction": "max"}, "reduction='max'"),
        ({"loss": "mse", "loss_weights": [1.0]}, "needs one loss per output"),
        ({"loss": ["mse", "mse"], "loss_weights": [1.0]}, "give one weight per output"),
        ({"loss": 3}, "loss=3: give a Keras loss"),
    ],
)
def test_what_cannot_be_meant_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        weighted_loss(**options)
