"""Keras steps and options that the trainer does not call: rejected, or reported in a warning."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import (
    TrainStep,
    accumulate_gradients,
    mean_gradients,
    per_example_gradients,
    weighted_loss,
)
from trainer_module.loop.evaluation import Evaluation

X, Y = np.ones((4, 3), "float32"), np.ones((4, 1), "float32")


class OwnLoss(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return keras.ops.mean((y - y_pred) ** 4)


class OwnStep(keras.Model):
    def train_step(self, data):
        return {}


class OwnTest(keras.Model):
    def test_step(self, data):
        return {}


def make(kind=keras.Model, activation=None, units=1):
    x = keras.Input((3,))
    return kind(x, keras.layers.Dense(units, activation=activation, name="head")(x))


def step(model, loss="mse"):
    return TrainStep(model, keras.optimizers.SGD(0.1), loss, micro_batch_size=2)


def evaluation(model):
    return Evaluation(model, "mse", tf.data.Dataset.from_tensors((X, Y)))


def test_steps_and_losses_of_a_model_are_refused():
    for call, message in [
        (lambda: step(make(OwnLoss)), r"\(OwnLoss\) overrides compute_loss.*TrainStep"),
        (lambda: step(make(OwnStep)), r"overrides train_step.*accumulate_gradients"),
        (
            lambda: accumulate_gradients(make(OwnLoss), "mse", X, Y, micro_batch_size=2),
            "overrides compute_loss, which accumulate_gradients does not call.* loss_fn",
        ),
        (
            lambda: per_example_gradients(make(OwnLoss), "mse", X, Y, chunk_size=2),
            "per_example_gradients does not call",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


def test_a_train_step_may_call_the_functions_that_it_is_made_of(warnings):
    """Reference: one step of SGD on the mean square by hand, 1e-6."""

    class Calls(keras.Model):
        def train_step(self, data):
            total = accumulate_gradients(self, "mse", *data, micro_batch_size=3)
            loss, gradients = mean_gradients(total, self)
            self.optimizer.apply(gradients, self.trainable_variables)
            return {"loss": loss}

    model = make(Calls)
    model.compile(keras.optimizers.SGD(0.1))
    kernel, bias = model.get_weights()
    slope = 2 * (X @ kernel + bias - Y) / len(X)
    model.fit(X, Y, batch_size=4, verbose=0)
    expected = kernel - 0.1 * X.T @ slope, bias - 0.1 * slope.sum(0)
    for found, wanted in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    per_example_gradients(model, "mse", X, Y, chunk_size=2)
    assert warnings == []


def test_overrides_that_evaluation_ignores_are_reported_once(warnings):
    model = make(OwnTest)
    evaluation(model)
    evaluation(model)
    assert len(warnings) == 1
    assert "overrides test_step, which Evaluation does not call" in warnings[0]


BINARY = keras.losses.BinaryCrossentropy


def sequential(*layers):
    return keras.Sequential([keras.Input((3,)), *layers])


def test_logits_under_a_loss_of_probabilities_are_reported_once(warnings):
    reshaped = keras.layers.Dense(2, name="last"), keras.layers.Reshape((2, 1))
    for build, loss, layer in [
        (make, "binary_crossentropy", "head"),
        (lambda: sequential(*reshaped), BINARY(), "last"),
        (lambda: sequential(make()), weighted_loss(BINARY()), "head"),
        (make, BINARY(from_logits=True), None),
        (make, "mse", None),
        (lambda: make(activation="sigmoid"), "binary_crossentropy", None),
        (lambda: sequential(keras.layers.Dense(2), keras.layers.Softmax()), BINARY(), None),
    ]:
        warnings.clear()
        model = build()
        step(model, loss)
        step(model, loss)
        assert len(warnings) == (layer is not None)
        if layer is not None:
            assert f"ends in layer {layer!r} without an activation" in warnings[0]
            assert "Crossentropy(from_logits=True)" in warnings[0]


def test_logits_of_one_output_are_reported_with_its_name(warnings):
    x = keras.Input((3,))
    model = keras.Model(x, {"a": keras.layers.Dense(1, name="top")(x), "b": make()(x)})
    step(model, {"a": "binary_crossentropy", "b": "mse"})
    assert len(warnings) == 1
    assert warnings[0].startswith("output 'a' of model")
