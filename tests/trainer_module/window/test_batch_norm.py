"""BatchNormalization in windows: `ghost` and `frozen`.

Reference of ghost: its definition in NumPy, forward and backward, in float64 to 1e-10: statistics
of each micro-batch of each replica, moving statistics of the global batch. Of frozen: full batches
in plain TensorFlow with training=False, to 1e-10. Of layers with masks and other axes: the moments
of the values in NumPy, to 1e-6.
"""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import TrainStep, recompute
from trainer_module.stages.recompute import recompute_layers

SIZE, RATE, MOMENTUM, EPSILON = 3, 0.1, 0.9, 1e-3
ROWS = (11, 12, 2)


def network(**options):
    model = keras.Sequential(
        [
            keras.Input((5,), dtype=keras.config.floatx()),
            keras.layers.Dense(4, use_bias=False),
            keras.layers.BatchNormalization(momentum=MOMENTUM, epsilon=EPSILON, name="bn"),
            keras.layers.Dense(1, use_bias=False),
        ]
    )
    random = np.random.default_rng(1)
    model.set_weights([np.abs(random.normal(0.5, 0.4, w.shape)) for w in model.weights])
    return model


def windows(shift=30):
    """Features far from 0, so that sums of squares would cancel."""
    for seed, rows in enumerate(ROWS):
        features, labels, weights = full_batch.batch("mlp", rows, seed)
        yield features + shift, labels, weights


def trained(strategy, shift=30, recomputed=(), **options):
    with full_batch.precision("float64"):
        with strategy.scope():
            model = network()
            optimizer = keras.optimizers.SGD(RATE)
        recompute_layers(model, recomputed)
        step = TrainStep(
            model, optimizer, "mse", micro_batch_size=SIZE, strategy=strategy, **options
        )
        for batch in windows(shift):
            step(batch)
    return step


def ghost_gradients(x, labels, weights, first, gamma, beta, last):
    """Gradients of Σ w (output - label)² in one micro-batch, and the values that are normalised."""
    z = x @ first
    deviation = np.sqrt(z.var(0) + EPSILON)
    normal = (z - z.mean(0)) / deviation
    scaled = normal * gamma + beta
    slope = 2 * weights[:, None] * (scaled @ last - labels)
    of_scaled = slope @ last.T
    of_normal = of_scaled * gamma
    of_z = of_normal - of_normal.mean(0) - normal * (of_normal * normal).mean(0)
    gradients = [x.T @ (of_z / deviation), (of_scaled * normal).sum(0), of_scaled.sum(0)]
    return [*gradients, scaled.T @ slope], z


def ghost_training(replicas):
    with full_batch.precision("float64"):
        batches = list(windows())
        first, gamma, beta, mean, variance, last = network().get_weights()
    trained = [first, gamma, beta, last]
    for features, labels, weights in batches:
        total, values = [0.0] * 4, []
        for i in range(replicas):
            begin, end = (len(features) * j // replicas for j in (i, i + 1))
            for at in range(begin, end, SIZE):
                part = slice(at, min(at + SIZE, end))
                gradients, z = ghost_gradients(
                    features[part], labels[part], weights[part], *trained
                )
                total = [a + b for a, b in zip(total, gradients, strict=True)]
                values.append(z)
        z = np.concatenate(values)
        mean = MOMENTUM * mean + (1 - MOMENTUM) * z.mean(0)
        variance = MOMENTUM * variance + (1 - MOMENTUM) * z.var(0)
        trained = [v - RATE * g / weights.sum() for v, g in zip(trained, total, strict=True)]
    return [*trained[:3], mean, variance, trained[3]]


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        ("none", {"jit_compile": True, "expected_rows": 12}),
        ("one_device", {"expected_rows": 2}),
        ("mirrored2", {}),
        ("mirrored2", {"jit_compile": True, "expected_rows": 12}),
    ],
)
def test_ghost_is_its_definition(strategies, strategy, options):
    strategy = strategies[strategy]
    step = trained(strategy, batch_norm="ghost", non_finite="skip", **options)
    expected = ghost_training(strategy.num_replicas_in_sync)
    assert full_batch.error(step.model.get_weights(), expected) < 1e-10
    with full_batch.precision("float64"):
        features, labels, weights = next(windows())
    step((np.where(labels > 0, np.nan, features), labels, weights))  # skipped
    assert step.skipped["non_finite"] == 1
    assert full_batch.error(step.model.get_weights(), expected) < 1e-10


@pytest.mark.parametrize(
    ("strategy", "options"),
    [("none", {"clip_per_example": 1e9}), ("mirrored2", {"recomputed": ["bn"]})],
)
def test_frozen_layers_use_the_moving_statistics(strategies, strategy, options):
    step = trained(strategies[strategy], shift=0, batch_norm="frozen", **options)
    with full_batch.precision("float64"):
        model, optimizer = network(), keras.optimizers.SGD(RATE)
        for features, labels, weights in windows(shift=0):
            with tf.GradientTape() as tape:
                errors = (model(features, training=False) - labels)[:, 0] ** 2
                loss = tf.reduce_sum(weights * errors) / weights.sum()
            optimizer.apply(
                tape.gradient(loss, [v.value for v in model.trainable_variables]),
                model.trainable_variables,
            )
    assert full_batch.error(step.model.get_weights(), model.get_weights()) < 1e-10


class Normalized(keras.layers.Layer):
    """A block that is recomputed, with a layer that is called twice."""

    def __init__(self):
        super().__init__()
        self.normal = keras.layers.BatchNormalization(axis=1, momentum=0.0)

    def call(self, x, training=None):
        return self.normal(2 * self.normal(x, training=training), training=training)


def test_masks_axes_repeated_calls_and_recomputed_layers(passes_of_one):
    ids = np.array([[1, 2, 0], [3, 0, 0], [4, 1, 2], [2, 2, 2], [0, 0, 0]])
    masked = keras.layers.BatchNormalization(momentum=0.0)
    block = recompute(Normalized())
    inputs = keras.Input((3,), dtype="int64")
    vectors = keras.layers.Embedding(5, 2, mask_zero=True)(inputs)
    unmasked = keras.layers.Reshape((3, 2))(masked(vectors))
    outputs = keras.layers.Dense(1)(keras.layers.Flatten()(block(unmasked)))
    model = keras.Model(inputs, outputs)
    table = model.get_weights()[0].astype("float64")
    optimizer = keras.optimizers.SGD(0.0)
    step = TrainStep(model, optimizer, "mse", micro_batch_size=2, batch_norm="ghost")
    assert bool(step((ids, np.zeros((5, 1), "float32"))).applied)
    values = table[ids[ids > 0]]
    np.testing.assert_allclose(masked.moving_mean, values.mean(0), atol=1e-6)
    np.testing.assert_allclose(masked.moving_variance, values.var(0), atol=1e-6)
    found, both = [], []
    for part in (table[ids[:2]], table[ids[2:4]], table[ids[4:]]):
        mask = ids[len(found) * 2 :][:2, :, None] > 0
        count = max(mask.sum(), 1)
        mean = (part * mask).sum((0, 1)) / count
        variance = ((part - mean) ** 2 * mask).sum((0, 1)) / count
        x = (part - mean) / np.sqrt(variance + 1e-3)
        found.append(x)
        y = (x - x.mean((0, 2), keepdims=True)) / np.sqrt(x.var((0, 2), keepdims=True) + 1e-3)
        both += [x, 2 * y]
    both = np.concatenate(both)
    normal = block.normal
    np.testing.assert_allclose(normal.moving_mean, both.mean((0, 2)), atol=1e-4)
    np.testing.assert_allclose(normal.moving_variance, both.var((0, 2)), rtol=1e-3)
