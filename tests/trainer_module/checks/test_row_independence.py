"""Models and losses whose rows influence each other: refused, since no window would be exact."""

from __future__ import annotations

from contextlib import nullcontext

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import TrainStep, weighted_loss
from trainer_module.checks.row_independence import check_rows_are_independent
from trainer_module.losses.weighted_loss import as_loss_function
from trainer_module.window.describe import describe
from trainer_module.window.spec import Batch, WindowSpec


class Layer(keras.layers.Layer):
    """A layer that calls a function."""

    def __init__(self, function, **options):
        super().__init__(**options)
        self.function = function

    def call(self, x):
        return self.function(self, x)


def model_of(function, **options):
    layers = [keras.Input((5,)), Layer(function, **options), keras.layers.Dense(2)]
    return keras.Sequential(layers)


def check(model, loss="mse", *, units=2, dtype="float32", added_losses="mean"):
    data = (tf.TensorSpec([None, 5]), tf.TensorSpec([None, units], dtype), tf.TensorSpec([None]))
    check_rows_are_independent(model, as_loss_function(loss), data, added_losses=added_losses)


ops = keras.ops


@pytest.mark.parametrize(
    "function",
    [
        lambda layer, x: x - ops.mean(x, axis=0),
        lambda layer, x: ops.softmax(x, axis=0),
        lambda layer, x: ops.matmul(x, ops.transpose(x)) @ x,
        lambda layer, x: ops.flip(x, axis=0),
    ],
)
def test_models_that_mix_rows_are_rejected(function):
    with pytest.raises(ValueError, match=r"output for a row depends on the other rows.*axis 0"):
        check(model_of(function))


def test_outputs_per_pair_of_rows_are_rejected():
    x = keras.Input((5,))
    pairs = Layer(lambda layer, x: ops.matmul(x, ops.transpose(x)))(keras.layers.Dense(3)(x))
    with pytest.raises(ValueError, match="depends on the other rows"):
        check(keras.Model(x, pairs), weighted_loss(lambda y, p: tf.reduce_mean(p**2, -1)))


def squares(labels, outputs, weights):
    return tf.reduce_sum(weights * tf.reduce_sum((labels - outputs) ** 2, -1))


@pytest.mark.parametrize(
    ("loss", "wrong"),
    [
        (lambda y, p, w: (tf.reduce_mean((y - p) ** 2), tf.reduce_sum(w)), "numerator"),
        (lambda y, p, w: (squares(y, p, w) + 0.1 * tf.reduce_sum(y[0] ** 2), 1.0), "numerator"),
        (lambda y, p, w: (squares(y, p, w), tf.constant(1.0)), "denominator"),
        (lambda y, p, w: (squares(y, p, w), tf.reduce_mean(w)), "denominator"),
        (weighted_loss(lambda y, p: tf.reduce_sum(tf.nn.log_softmax(p, 0), -1)), "numerator"),
    ],
)
def test_losses_that_are_not_sums_are_rejected(loss, wrong):
    with pytest.raises(ValueError, match=f"loss function's {wrong} does not add up: .*no mean"):
        check(full_batch_model(), loss)


def full_batch_model():
    return keras.Sequential([keras.Input((5,)), keras.layers.Dense(2)])


def adding(function):
    def call(layer, x):
        layer.add_loss(function(x))
        return x

    return model_of(call)


def test_added_losses_must_match_the_option():
    """A mean over rows, a sum over rows, a constant (which counts once, as a mean does)."""
    mean, total, constant = (
        adding(function)
        for function in (
            lambda x: ops.mean(x**2),
            lambda x: ops.sum(x**2),
            lambda x: 0.1 + 0.0 * x[0, 0],
        )
    )
    check(mean)
    check(constant)
    check(total, added_losses="sum")
    with pytest.raises(ValueError, match=r"'mean', but .* not a mean over rows.*losses=\"sum\""):
        check(total)
    with pytest.raises(ValueError, match=r"'sum', but .* not a sum over rows.*losses=\"mean\""):
        check(constant, added_losses="sum")
    with pytest.raises(ValueError, match="do not mix means and sums"):
        check(adding(lambda x: ops.max(x)))


class Training(keras.layers.Layer):
    """A layer that calls a function in training, and passes its input on otherwise."""

    def __init__(self, function, **options):
        super().__init__(**options)
        self.function = function

    def call(self, x, training=None):
        return self.function(x) if training else x


class Gated(keras.layers.Layer):
    """x + gate * softmax over rows, with a gate that is 0 at first."""

    def build(self, shape):
        self.gate = self.add_weight(shape=(), initializer="zeros", name="gate")

    def call(self, x):
        return x + self.gate * ops.softmax(x, axis=0)


class Noise(keras.layers.Layer):
    """Adds noise, in inference too, whose seed is a number or the layer's own generator."""

    def __init__(self, scale, seed=None):
        super().__init__()
        self.scale = scale
        self.seed = keras.random.SeedGenerator(7) if seed is None else seed

    def call(self, x):
        return x + self.scale * keras.random.normal(ops.shape(x), dtype=x.dtype, seed=self.seed)


def softmax_over_rows(layer, x):
    return ops.softmax(x, axis=0)


def stack(*layers, dtype="float32", head="glorot_uniform"):
    last = keras.layers.Dense(2, kernel_initializer=head, dtype=dtype)
    return keras.Sequential([keras.Input((5,), dtype=dtype), *layers, last])


@pytest.mark.parametrize(
    "build",
    [
        lambda: stack(Training(lambda x: ops.softmax(x, axis=0))),
        lambda: stack(keras.layers.Dropout(0.4), Training(lambda x: x - ops.mean(x, axis=0))),
        lambda: stack(Layer(softmax_over_rows), head="zeros"),
        lambda: stack(Gated()),
        lambda: stack(Noise(1e-12), Layer(softmax_over_rows)),
        lambda: stack(Noise(1e-1), Layer(softmax_over_rows)),
        lambda: stack(
            Layer(lambda layer, x: x + 1e-6 * ops.mean(x, axis=0), dtype="float64"), dtype="float64"
        ),
        lambda: stack(
            Layer(lambda layer, x: x + 1e-6 * ops.cast(ops.shape(x)[0], x.dtype), dtype="float64"),
            dtype="float64",
        ),
    ],
    ids=[
        "training",
        "training_dropout",
        "zero_head",
        "zero_gate",
        "little_noise",
        "noise",
        "small",
        "number",
    ],
)
def test_hidden_mixing_of_rows_is_rejected(build):
    """In training alone, behind zeros, under noise, or by one part in a million in float64."""
    model = build()
    before = [v.numpy() for v in model.variables]
    data = tf.zeros([4, 5], model.inputs[0].dtype), tf.zeros([4, 2])
    with pytest.raises(ValueError, match="depends on the other rows"):
        describe(WindowSpec(model, as_loss_function("mse")), Batch(*data))
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)  # seeds too


@pytest.mark.parametrize(
    "build",
    [
        lambda: stack(Noise(0.5, seed=3)),
        lambda: stack(Noise(0.5), keras.layers.Dropout(0.5)),
        lambda: stack(keras.layers.GaussianNoise(0.3), keras.layers.LayerNormalization()),
    ],
    ids=["seed=3", "always", "training"],
)
def test_noise_is_accepted(build, caplog):
    model = build()
    data = tf.zeros([4, 5]), tf.zeros([4, 2])
    describe(WindowSpec(model, as_loss_function("mse")), Batch(*data))
    assert not caplog.records
    constant = WindowSpec(model, lambda y, p, w: (tf.reduce_sum(p), tf.constant(1.0)))
    with pytest.raises(ValueError, match="loss function's denominator does not add up"):
        describe(constant, Batch(*data))


def test_synthetic_text_is_text():
    x = keras.Input((2,), dtype="string")
    ids = keras.layers.Hashing(16)(x)
    rows = keras.layers.Flatten()(keras.layers.Embedding(16, 3)(ids))
    data = (tf.TensorSpec([None, 2], tf.string), tf.TensorSpec([None, 2]), None)
    for mixing in (False, True):
        hidden = Layer(softmax_over_rows)(rows) if mixing else rows
        model = keras.Model(x, keras.layers.Dense(2)(hidden))
        with pytest.raises(ValueError, match="other rows") if mixing else nullcontext():
            check_rows_are_independent(model, as_loss_function("mse"), data, added_losses="mean")


def test_failed_check_is_reported_once(caplog):
    """Ids outside of their table; a logarithm of 0 for synthetic rows; a strange loss."""
    x = keras.Input((5,))
    table = keras.layers.Embedding(3, 2)
    ids = Layer(lambda layer, x: ops.cast(x, "int32") + 10)(x)
    outside = keras.Model(x, keras.layers.Flatten()(table(ids)), name="outside")
    negative = keras.Sequential(
        [keras.Input((5,)), Layer(lambda _, x: ops.log(x - 1))], name="negative"
    )
    for _ in range(2):
        check(outside)
        check(negative)
        check(full_batch_model(), lambda y, p, w: 1 / 0)
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 3
    for message, who in zip(warnings, ("'outside'", "'negative'", "loss function"), strict=True):
        assert "was not checked" in message
        assert who in message
    assert "not finite" in warnings[1]
    assert "ZeroDivisionError" in warnings[2]


@pytest.mark.parametrize("kind", full_batch.MODELS)
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_models_of_other_tests_are_accepted(kind, policy):
    with full_batch.precision(policy):
        model = full_batch.MODELS[kind]()
    data = tf.nest.map_structure(
        lambda x: tf.TensorSpec([None, *x.shape[1:]], x.dtype), full_batch.batch(kind)
    )
    loss = as_loss_function(full_batch.loss_for(kind))
    check_rows_are_independent(model, loss, data, added_losses="mean")


def test_train_step_checks_before_the_first_window(strategies):
    strategy = strategies["mirrored2"]
    with strategy.scope():
        model, optimizer = (
            model_of(lambda layer, x: x - ops.mean(x, axis=0)),
            keras.optimizers.SGD(),
        )
    step = TrainStep(model, optimizer, "mse", micro_batch_size=2, strategy=strategy)
    before = model.get_weights()
    features, labels, _ = full_batch.batch("mlp")
    with pytest.raises(ValueError, match="depends on the other rows"):
        step((features, labels[:, [0, 0]]))
    assert full_batch.error(model.get_weights()[:1], before[:1]) == 0
