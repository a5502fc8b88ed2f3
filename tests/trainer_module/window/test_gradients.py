"""Random masks, state and added losses of layers."""

from __future__ import annotations

import itertools

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import TrainStep, accumulate_gradients

pytestmark = pytest.mark.usefixtures("passes_of_one")

FEATURES = 16


def total_output(labels, outputs, sample_weight):
    return tf.reduce_sum(outputs), tf.cast(tf.shape(labels)[0], tf.float32)


def masks(strategy, seed, micro_batch_size=1, steps=2):
    """Return which inputs dropout kept, bools [steps, 4 rows, FEATURES].

    Row i is 4^i everywhere, so that the kernel's update, Σ_i 2 mask_i 4^i / 4, holds every mask as
    a digit.
    """
    keras.utils.set_random_seed(seed)
    with strategy.scope():
        nested = keras.Sequential([keras.layers.Dropout(0.5)])
        kernel = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = keras.Sequential([keras.Input((FEATURES,)), nested, kernel])
        optimizer = keras.optimizers.SGD(1.0)
    step = TrainStep(
        model, optimizer, total_output, micro_batch_size=micro_batch_size, strategy=strategy
    )
    rows = np.tile(4.0 ** np.arange(4, dtype="float32")[:, None], FEATURES)
    found = []
    for _ in range(steps):
        before = model.get_weights()[0]
        step((rows, np.zeros((4, 1), "float32")))
        total = np.rint(4 * (before - model.get_weights()[0])[:, 0]).astype(int)
        digits = [(total // 4**i) % 4 for i in range(4)]
        assert set(np.unique(digits)) == {0, 2}
        found.append(np.array(digits) == 2)
    return np.array(found)


def test_dropout_masks_differ_by_micro_batch_replica_and_step_and_repeat_by_seed(strategies):
    """Two replicas of two micro-batches; dropout is in a model within the model."""
    first = masks(strategies["mirrored2"], seed=1)
    for one, other in itertools.combinations(first.reshape(8, FEATURES), 2):
        assert np.any(one != other)
    assert 0.3 < first.mean() < 0.7
    # The masks of the rows of one micro-batch differ, too.
    whole, again, other = (
        masks(strategies["none"], seed, micro_batch_size=4, steps=1) for seed in (1, 1, 2)
    )
    assert len({tuple(row) for row in whole[0]}) == 4
    np.testing.assert_array_equal(again, whole)
    assert np.any(other != whole)


class Counting(keras.layers.Layer):
    """Count calls, in something that Keras tracks or does not."""

    def __init__(self, kind):
        super().__init__(name="tally")
        self.kind = kind
        self.seen = {
            "weight": lambda: self.add_weight(shape=(), trainable=False, name="seen"),
            "metric": lambda: keras.metrics.Sum(name="seen"),
            "tf": lambda: tf.Variable(0.0, trainable=False, name="seen"),
            "random": lambda: None,
        }[kind]()

    def call(self, x):
        if self.kind == "metric":
            self.seen.update_state(1.0)
        elif self.kind == "random":
            return x + keras.random.normal(keras.ops.shape(x))
        else:
            self.seen.assign_add(1.0)
        return x


def with_layer(layer):
    return keras.Sequential([keras.Input((5,)), layer, keras.layers.Dense(1)])


def stateful_lstm():
    layers = [keras.Input(batch_shape=(11, 5)), keras.layers.Reshape((5, 1))]
    layers += [keras.layers.LSTM(2, stateful=True, name="lstm"), keras.layers.Dense(1)]
    return keras.Sequential(layers)


def test_layers_that_update_state_are_refused_by_name():
    """Pitfall: in a loop of micro-batches the state would change K times, or not at all."""
    features, labels, _ = map(tf.constant, full_batch.batch("mlp"))
    for build, named in [
        (lambda: with_layer(Counting("weight")), "tally/seen"),
        (lambda: with_layer(Counting("metric")), "a state of layer '.*tally'"),
        (lambda: with_layer(Counting("tf")), "seen:0"),
        (lambda: with_layer(Counting("random")), "a seed or state outside the model"),
        (stateful_lstm, "a state of layer '.*lstm'"),
    ]:
        model = build()
        states = [variable.numpy() for variable in model.variables]
        message = rf"updates .*{named}.* while it is called with training=True.*LayerNormalization"
        with pytest.raises(ValueError, match=message):
            accumulate_gradients(model, "mse", features, labels, micro_batch_size=2)
        for before, variable in zip(states, model.variables, strict=True):
            np.testing.assert_array_equal(variable.numpy(), before)


class Subclassed(keras.Model):
    """Normalises by learned statistics, and penalises the hidden layer's mean square."""

    def __init__(self, features):
        super().__init__()
        self.normalise = keras.layers.Normalization()
        self.normalise.adapt(features)
        self.hidden = keras.layers.Dense(4, activation="tanh")
        self.out = keras.layers.Dense(1)

    def call(self, x):
        hidden = self.hidden(self.normalise(x))
        self.add_loss(0.3 * keras.ops.mean(hidden**2))
        return self.out(hidden)


def test_a_subclassed_model_with_a_loss_and_fixed_statistics(float64, strategies):
    """Windows of 11 and 7 rows. Reference: full_batch.train, 1e-12."""
    windows = [full_batch.batch("mlp", rows, rows) for rows in (11, 7)]

    def build():
        keras.utils.set_random_seed(1)
        model = Subclassed(windows[0][0])
        model(windows[0][0])
        return model, keras.optimizers.Adam(0.05)

    strategy = strategies["mirrored2"]
    with strategy.scope():
        model, optimizer = build()
    step = TrainStep(model, optimizer, "mse", micro_batch_size=2, strategy=strategy)
    for window in windows:
        step(window)
    alone, reference = build()
    weights, _ = full_batch.train(alone, reference, "mlp", windows)
    assert full_batch.error(model.get_weights(), weights) < 1e-12


class Autoencoder(keras.Model):
    """Learns from nothing but what it gives to add_loss."""

    def __init__(self):
        super().__init__()
        self.out = keras.layers.Dense(5)

    def call(self, x):
        self.add_loss(keras.ops.mean((self.out(x) - x) ** 2))
        return self.out(x)


def test_a_model_that_learns_from_add_loss_alone(float64, strategies):
    """Reference: mean squared error of its input, the full batch at once, 1e-12."""

    def rows_alone(labels, outputs, sample_weight):
        return tf.zeros([], outputs.dtype), tf.cast(tf.shape(outputs)[0], outputs.dtype)

    features, _, _ = full_batch.batch("mlp")
    strategy = strategies["mirrored2"]
    with strategy.scope():
        model, optimizer = Autoencoder(), keras.optimizers.Adam(0.05)
        model(features)
    alone = keras.Sequential([keras.Input((5,), dtype="float64"), keras.layers.Dense(5)])
    alone.set_weights(model.get_weights())
    reference = keras.optimizers.Adam(0.05)
    step = TrainStep(model, optimizer, rows_alone, micro_batch_size=2, strategy=strategy)
    for _ in range(3):
        report = step((features, features))
        loss, gradients = full_batch.full_batch_gradients(alone, "mlp", features, features, None)
        reference.apply(gradients, alone.trainable_variables)
        assert full_batch.error([report.loss], [loss]) < 1e-12
    assert full_batch.error(model.get_weights(), alone.get_weights()) < 1e-12
