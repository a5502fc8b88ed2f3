"""Functions of the user's on the mean gradient (TrainStep(transforms=[...])).

Reference: NumPy in float64, the full batch at once; tolerance 1e-12 of each variable's largest
value. The model is linear, so that its gradient is written down here.
"""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import TrainStep
from trainer_module.step.reports import NonFiniteError

ROWS = (11, 4, 1, 7)
# Keras rounds some of them to float32: numbers that it does not change.
L2, RATE, CLIP = 0.125, 0.25, 0.75


def centralise(gradients, variables):
    """Gradient centralisation: each kernel's gradient minus its mean over the inputs."""
    return [
        g - tf.reduce_mean(g, list(range(v.shape.rank - 1)), keepdims=True) if len(v.shape) > 1
        else g
        for g, v in zip(gradients, [tf.convert_to_tensor(v) for v in variables], strict=True)
    ]  # fmt: skip


def add_noise(gradients, variables, step, *, scale=0.3):
    """Gradient noise that shrinks with the steps: a function of the step alone."""
    scale = scale / (1.0 + tf.cast(step, tf.float64)) ** 0.55
    return [
        g + scale * tf.random.stateless_normal(g.shape, [number, step], dtype=g.dtype)
        for number, g in enumerate(gradients)
    ]


def linear():
    keras.utils.set_random_seed(0)
    penalty = keras.regularizers.L2(L2)
    return keras.Sequential([keras.Input((5,)), keras.layers.Dense(3, kernel_regularizer=penalty)])


def batches():
    random = np.random.default_rng(0)
    for rows in ROWS:
        weights = random.uniform(0.0, 2.0, rows)
        yield random.normal(size=(rows, 5)), random.normal(size=(rows, 3)), weights


def reference(model, transform, clip_norm=CLIP):
    """Return the weights after all batches."""
    kernel, bias = (np.array(w) for w in model.get_weights())
    for step, (x, y, w) in enumerate(batches()):
        slope = 2 / 3 * w[:, None] * (x @ kernel + bias - y) / w.sum()
        found = transform([x.T @ slope + 2 * L2 * kernel, slope.sum(0)], step)
        factor = min(1.0, clip_norm / np.sqrt(sum((g**2).sum() for g in found)))
        kernel, bias = (
            old - RATE * factor * g for old, g in zip((kernel, bias), found, strict=True)
        )
    return [kernel, bias]


def centralised(gradients, step):
    kernel, bias = gradients
    return [kernel - kernel.mean(0, keepdims=True), bias]


def with_noise(gradients, step):
    return [g.numpy() for g in add_noise(list(map(tf.constant, gradients)), [], np.int64(step))]


def trained(strategy, transforms, *, several_steps=True, micro_batch_size=3):
    with strategy.scope():
        model = linear()
        optimizer = keras.optimizers.SGD(RATE)
    step = TrainStep(
        model,
        optimizer,
        "mse",
        micro_batch_size=micro_batch_size,
        strategy=strategy,
        clip_norm=CLIP,
        transforms=transforms,
    )
    if several_steps:
        specs = tuple(tf.TensorSpec([None, *axes], tf.float64) for axes in ((5,), (3,), ()))
        data = tf.data.Dataset.from_generator(batches, output_signature=specs)
        assert step.run(iter(data), 9).steps == len(ROWS)
    else:
        for batch in batches():
            step(batch)
    return model


@pytest.mark.parametrize(
    ("transforms", "expected", "strategy"),
    [
        ([add_noise], with_noise, "none"),
        (
            [centralise, add_noise],
            lambda g, step: with_noise(centralised(g, step), step),
            "mirrored2",
        ),
    ],
    ids=["noise", "both"],
)
def test_transforms_are_exact(strategies, float64, transforms, expected, strategy):
    """Ragged windows, weights, regularisation and clipping, several steps per call."""
    right = reference(linear(), expected)
    found = trained(strategies[strategy], transforms)
    assert full_batch.error(found.get_weights(), right) < 1e-12
    assert full_batch.error(reference(linear(), lambda g, step: g), right) > 1e-3


def test_a_gradient_that_a_transform_makes_nan_is_not_applied(float64):
    model = linear()
    before = model.get_weights()
    step = TrainStep(
        model,
        keras.optimizers.SGD(RATE),
        "mse",
        micro_batch_size=3,
        transforms=[lambda gradients, variables: [g / 0.0 for g in gradients]],
    )
    with pytest.raises(NonFiniteError, match="gradient's norm is not finite"):
        step(next(batches()))
    assert full_batch.error(model.get_weights(), before) == 0


def one_less(gradients, variables):
    return gradients[1:]


def summed(gradients, variables):
    return [tf.reduce_sum(g) for g in gradients]


def nothing(gradients, variables):
    for gradient in gradients:
        tf.square(gradient)


def random_state(gradients, variables):
    return [g + tf.random.normal(g.shape, dtype=g.dtype) for g in gradients]


def seed_generator(gradients, variables, seeds=keras.random.SeedGenerator(1)):  # noqa: B008
    return [g + keras.random.normal(g.shape, seed=seeds, dtype=g.dtype) for g in gradients]


def momentum(gradients, variables):
    MOMENTUM.assign_add(1.0)
    return [g * tf.cast(MOMENTUM, g.dtype) for g in gradients]


def decay(gradients, variables):
    for variable in variables:
        variable.assign(0.9 * variable)
    return gradients


MOMENTUM = tf.Variable(0.0)


def test_invalid_transforms_are_rejected_by_the_constructor():
    for transform, message in [
        (one_less, "one_less returned list of 1: return a list of 2"),
        (nothing, "nothing returned NoneType: return a list of 2"),
        (summed, r"summed returned shape \(\) for variable .*kernel.*\(5, 3\)"),
        (random_state, "random_state draws random numbers by RandomStandardNormal.*stateless"),
        (seed_generator, "seed_generator updates a Keras variable or seed"),
        (momentum, "momentum updates Variable"),
        (decay, "decay updates a Keras variable"),
    ]:
        model = linear()
        before = model.get_weights()
        with pytest.raises(ValueError, match=message):
            TrainStep(
                model,
                keras.optimizers.SGD(RATE),
                "mse",
                micro_batch_size=3,
                transforms=[transform],
            )
        assert full_batch.error(model.get_weights(), before) == 0
