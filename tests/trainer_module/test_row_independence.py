"""Models and losses whose rows influence each other: refused, since no window would be exact."""

from __future__ import annotations

import full_batch
import keras
import pytest
import tensorflow as tf

from trainer_module import TrainStep, weighted_loss
from trainer_module.loss import as_loss_function
from trainer_module.row_independence import check_rows_are_independent


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
def test_models_that_mix_rows_are_refused(function):
    with pytest.raises(ValueError, match=r"output for a row depends on the other rows.*axis 0"):
        check(model_of(function))


def test_pairs_of_rows_as_output_are_refused():
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
def test_losses_that_do_not_add_up_are_refused(loss, wrong):
    with pytest.raises(ValueError, match=f"loss function's {wrong} does not add up: .*no mean"):
        check(full_batch_model(), loss)


def full_batch_model():
    return keras.Sequential([keras.Input((5,)), keras.layers.Dense(2)])


@pytest.mark.skipif(not hasattr(keras.losses, "Circle"), reason="Keras has no circle loss yet")
def test_keras_circle_loss_compares_rows():
    with pytest.raises(ValueError, match="numerator does not add up"):
        check(full_batch_model(), keras.losses.Circle(), units=1, dtype="int32")


def adding(function):
    def call(layer, x):
        layer.add_loss(function(x))
        return x

    return model_of(call)


def test_added_losses_are_what_the_option_says():
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
    with pytest.raises(ValueError, match=r"'mean', but .* no mean over rows.*losses=\"sum\""):
        check(total)
    with pytest.raises(ValueError, match=r"'sum', but .* no sum over rows.*losses=\"mean\""):
        check(constant, added_losses="sum")
    with pytest.raises(ValueError, match="split what is a mean from what is a sum"):
        check(adding(lambda x: ops.max(x)))


def test_what_answers_at_random_or_not_at_all_is_left_alone():
    """Dropout that is always on; ids outside of their table; a loss of the user's own shapes."""
    seeds = keras.random.SeedGenerator(1)
    check(model_of(lambda layer, x: keras.random.dropout(x, 0.5, seed=seeds)))
    x = keras.Input((5,))
    table = keras.layers.Embedding(3, 2)
    ids = Layer(lambda layer, x: ops.cast(x, "int32") + 10)(x)
    check(keras.Model(x, keras.layers.Flatten()(table(ids))))
    check(full_batch_model(), lambda y, p, w: 1 / 0)


@pytest.mark.parametrize("kind", full_batch.MODELS)
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_models_of_the_other_tests_pass(kind, policy):
    with full_batch.precision(policy):
        model = full_batch.MODELS[kind]()
    data = tf.nest.map_structure(
        lambda x: tf.TensorSpec([None, *x.shape[1:]], x.dtype), full_batch.batch(kind)
    )
    loss = as_loss_function(full_batch.loss_for(kind))
    check_rows_are_independent(model, loss, data, added_losses="mean")


def test_a_train_step_asks_before_its_first_window(strategies):
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
