"""Random numbers: by Keras' seeds they may be drawn anywhere, by TensorFlow's own state nowhere."""

from __future__ import annotations

import full_batch
import keras
import pytest
import tensorflow as tf

from trainer_module import TrainStep, accumulate_gradients, weighted_loss

ops = keras.ops


class Layer(keras.layers.Layer):
    """Calls a function, with its own seed generator and tf.random.Generator."""

    def __init__(self, function):
        super().__init__(name="noisy")
        self.function = function
        self.seeds = keras.random.SeedGenerator(1)
        self.generator = tf.random.Generator.from_seed(1)

    def call(self, x):
        return self.function(self, x)


def with_layer(layer, shape=(5,)):
    layers = [keras.Input(shape), layer, keras.layers.Flatten(), keras.layers.Dense(1)]
    return keras.Sequential(layers)


def gradients(model, features, loss="mse"):
    labels = tf.zeros([len(features), 1])
    return accumulate_gradients(model, loss, features, labels, micro_batch_size=2)


def in_a_branch(layer, x):
    return tf.cond(tf.reduce_sum(x) > 0, lambda: x + tf.random.normal(tf.shape(x)), lambda: x)


def in_a_loop(layer, x):
    def body(i, x):
        return i + 1, x * tf.random.uniform(tf.shape(x))

    return tf.while_loop(lambda i, x: i < 2, body, (0, x))[1]


@tf.function
def scrambled(x):
    return tf.transpose(tf.random.shuffle(tf.transpose(x)))


@tf.function
def calling(x):
    return in_a_branch(None, x)


def test_stateful_random_operations_are_rejected():
    for function, kind, inside in [
        (lambda layer, x: tf.nn.dropout(x, 0.5), "RandomUniform", ""),
        (lambda layer, x: x + tf.random.normal(tf.shape(x)), "RandomStandardNormal", ""),
        (lambda layer, x: x + layer.generator.normal(tf.shape(x)), "RngReadAndSkip", ""),
        (in_a_branch, "RandomStandardNormal", "cond/"),
        (in_a_loop, "RandomUniform", "while/"),
        (lambda layer, x: scrambled(x), "RandomShuffle", "[^']*Call/"),
        (lambda layer, x: calling(x), "RandomStandardNormal", "[^']*Call/cond/"),
    ]:
        features, _, _ = map(tf.constant, full_batch.batch("mlp"))
        message = (
            rf"draws random numbers with {kind} at '[^']*noisy\w*/{inside}.*{kind}', .*layers.Drop"
        )
        with pytest.raises(ValueError, match=message):
            gradients(with_layer(Layer(function)), features)


def test_train_step_rejects_stateful_random_operations_before_the_first_window(strategies):
    """A Lambda in a model within the model, on two replicas."""
    strategy = strategies["mirrored2"]
    with strategy.scope():
        noise = keras.layers.Lambda(lambda x: x + tf.random.normal(tf.shape(x)), name="noise")
        model = with_layer(keras.Sequential([keras.Input((5,)), noise]))
        optimizer = keras.optimizers.SGD(0.1)
    step = TrainStep(model, optimizer, "mse", micro_batch_size=2, strategy=strategy)
    before = model.get_weights()
    with pytest.raises(ValueError, match=r"RandomStandardNormal at '.*noise\w*/"):
        step(full_batch.batch("mlp")[:2])
    assert full_batch.error(model.get_weights()[:1], before[:1]) == 0


def test_candidate_sampling_in_a_loss_is_rejected():
    table = tf.constant(tf.random.stateless_normal([50, 3], (0, 0)))

    def loss(labels, outputs):
        labels = tf.cast(labels, tf.int64)
        return tf.nn.sampled_softmax_loss(table, tf.zeros([50]), labels, outputs, 5, 50)

    features, _, _ = map(tf.constant, full_batch.batch("mlp"))
    with pytest.raises(
        ValueError, match=r"the model or its loss .* with LogUniformCandidateSampler"
    ):
        gradients(full_batch.mlp(3), features, weighted_loss(loss))


def test_draws_from_keras_seed_generators_are_accepted():
    for function in [
        lambda layer, x: keras.random.dropout(x, 0.5, seed=layer.seeds),
        lambda layer, x: x * keras.random.binomial((5,), 9.0, 0.5, seed=layer.seeds),
        lambda layer, x: keras.random.shuffle(x, axis=1, seed=layer.seeds),
        lambda layer, x: x + ops.cast(keras.random.categorical(x, 5, seed=layer.seeds), x.dtype),
        lambda layer, x: x + tf.random.stateless_normal([5], (0, 1)),
    ]:
        features, _, _ = map(tf.constant, full_batch.batch("mlp"))
        assert float(gradients(with_layer(Layer(function)), features).rows) == full_batch.ROWS
