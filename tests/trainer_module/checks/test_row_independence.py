"""Models and losses whose rows influence each other are refused, since no window would be exact.

The reference of what is refused is the equation of `checks/row_independence.py`: each builder below
says which of its terms differs. Nothing else may be refused.
"""

from __future__ import annotations

import functools
from typing import Any

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import TrainStep, accumulate_gradients, weighted_loss
from trainer_module.checks.row_independence import check_rows_are_independent
from trainer_module.losses.weighted_loss import as_loss_function
from trainer_module.window import describe

ops = keras.ops
ROWS = 24


class Layer(keras.layers.Layer):
    """A layer that calls a function; in inference it passes on its input if `training`."""

    def __init__(self, function, *, training=False, **options):
        super().__init__(**options)
        self.function = function
        self.only_training = training

    def call(self, x, training=None):
        return x if self.only_training and not training else self.function(self, x)


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


def stack(*layers, head="glorot_uniform"):
    last = keras.layers.Dense(2, kernel_initializer=head, name="head")
    return keras.Sequential([keras.Input((5,)), *layers, last])


def adding(function, *layers, **options):
    """A model whose layer `adds` passes a function of its inputs to `add_loss`."""

    def call(layer, x):
        layer.add_loss(function(x))
        return x

    hidden = keras.layers.Dense(4, activation="tanh")
    return stack(hidden, *layers, Layer(call, name="adds", **options))


def batch(*, units=2, rows=ROWS):
    random = np.random.default_rng(0)
    features = random.normal(size=(rows, 5)).astype("float32")
    return features, random.normal(size=(rows, units)).astype("float32"), None


def check(model, loss: Any = "mse", data: Any = None, added_losses: Any = "mean"):
    """Check, and compare all variables, seeds too, before and after."""
    before = [v.numpy() for v in model.variables]
    try:
        loss = as_loss_function(loss)
        data = batch() if data is None else data
        return check_rows_are_independent(model, loss, data, added_losses=added_losses)
    finally:
        for variable, value in zip(model.variables, before, strict=True):
            np.testing.assert_array_equal(variable.numpy(), value)


def softmax(layer, x):
    return ops.softmax(x, axis=0)


def at_most_five(layer, x):
    """The capacity of an expert in a mixture of experts."""
    return x * ops.cast(ops.cumsum(ops.cast(x > 0, "int32"), 0) <= 5, x.dtype)


def group_mean(layer, inputs):
    """The mean over the rows with the same id."""
    x, ids = inputs
    same = ops.cast(ops.equal(ids, ops.transpose(ids)), x.dtype)
    return ops.matmul(same, x) / ops.sum(same, -1, keepdims=True)


def place(layer, x):
    return x + ops.cast(ops.cumsum(ops.ones_like(x[:, :1]), 0), x.dtype)


def number(layer, x):
    return x + 1e-3 * ops.cast(ops.shape(x)[0], x.dtype)


DROPOUT = keras.layers.Dropout
MIXING = {
    "mean": lambda: stack(Layer(lambda _, x: x - ops.mean(x, axis=0), name="mixes")),
    "capacity": lambda: stack(Layer(at_most_five, name="mixes")),
    "place_in_training_with_dropout": lambda: stack(
        DROPOUT(0.4), Layer(place, training=True, name="mixes"), DROPOUT(0.2)
    ),
    "number_in_training_with_dropout": lambda: stack(
        DROPOUT(0.4), Layer(number, training=True, name="mixes")
    ),
    "zero_head": lambda: stack(Layer(softmax, name="mixes"), head="zeros"),
    "zero_gate": lambda: stack(Gated(name="mixes")),
    "little_noise": lambda: stack(Noise(1e-12), Layer(softmax, name="mixes")),
    "small": lambda: stack(Layer(lambda _, x: x + 1e-6 * ops.mean(x, axis=0), name="mixes")),
}


@pytest.mark.parametrize("kind", MIXING)
def test_models_that_mix_rows_are_rejected_by_layer(kind):
    with pytest.raises(ValueError, match=r"'mixes'.*depends on the other rows.*axis 0.*Model\.fit"):
        check(MIXING[kind]())


def test_operations_and_pairs_are_rejected():
    """By an operation of a functional model without a layer; with an output `[rows, rows]`."""
    x = keras.Input((5,))
    hidden = keras.layers.Dense(3)(x)
    operation = keras.Model(x, keras.layers.Dense(2)(hidden - ops.mean(hidden, axis=0)))
    pairs = keras.Model(x, ops.matmul(hidden, ops.transpose(hidden)))
    loss = weighted_loss(lambda y, p: tf.reduce_mean(p**2, -1))
    for model, name in ((operation, "subtract"), (pairs, "matmul")):
        with pytest.raises(ValueError, match=f"'{name}.*depends on the other rows"):
            check(model, loss)


def balance(x):
    """Switch Transformer's loss: a product of means over rows."""
    probability = ops.softmax(x)
    chosen = ops.one_hot(ops.argmax(probability, -1), 4, dtype=probability.dtype)
    return ops.sum(ops.mean(chosen, 0) * ops.mean(probability, 0))


ADDED = {
    "mean": (lambda x: ops.mean(x**2), "mean"),
    "constant": (lambda x: 0.1 + 0.0 * ops.sum(x[:1]), "mean"),
    "sum": (lambda x: ops.sum(x**2), "sum"),
    "max": (lambda x: ops.max(x), None),
    "balance of experts": (balance, None),
}


def test_added_losses_must_match_the_option():
    """A mean, a constant, which counts once as a mean does, a sum, and what is neither."""
    for function, fits in ADDED.values():
        for model in (adding(function), adding(function, DROPOUT(0.3), training=True)):
            assert fits is None or check(model, added_losses=fits)
            advice = (
                r"do not mix means and sums.*Model\.fit" if fits is None else f'losses="{fits}"'
            )
            option = "sum" if fits == "mean" else "mean"
            with pytest.raises(
                ValueError, match=f"'{option}', but .*'adds'.*not a {option}.*{advice}"
            ):
                check(model, added_losses=option)


def squares(labels, outputs, weights):
    return tf.reduce_sum(weights * tf.reduce_sum((labels - outputs) ** 2, -1))


def test_losses_that_are_not_sums_are_rejected():
    for loss, wrong in [
        (lambda y, p, w: (tf.reduce_mean((y - p) ** 2), tf.reduce_sum(w)), "numerator"),
        (lambda y, p, w: (squares(y, p, w) + 0.1 * tf.reduce_sum(y[0] ** 2), 1.0), "numerator"),
        (lambda y, p, w: (squares(y, p, w), tf.constant(1.0)), "denominator"),
        (lambda y, p, w: (squares(y, p, w), tf.reduce_mean(w)), "denominator"),
        (weighted_loss(lambda y, p: tf.reduce_sum(tf.nn.log_softmax(p, 0), -1)), "numerator"),
        (weighted_loss(lambda y, p: tf.reduce_sum((tf.cast(y, tf.float32) - p) ** 2, -1)), None),
    ]:
        data = (*batch()[:2], np.ones(ROWS, "float32"))
        for model in (stack(), stack(DROPOUT(0.4))):
            if wrong is None:
                assert check(model, loss, data)
                continue
            with pytest.raises(
                ValueError, match=f"loss function's {wrong} does not add up: .*no mean"
            ):
                check(model, loss, data)


def pairwise(labels, scores):
    """A ranking loss over pairs of the same query; labels are query id and relevance."""
    query, relevance, score = labels[:, 0], labels[:, 1], scores[:, 0]
    pairs = (query[:, None] == query[None]) & (relevance[:, None] > relevance[None])
    return tf.reduce_sum(
        tf.cast(pairs, score.dtype) * tf.math.softplus(-(score[:, None] - score[None])), 1
    )


def test_rows_compared_by_ids_are_rejected():
    """Also if no two rows of the batch have the same id: mixed rows do."""
    x, relevance, _ = batch(units=1)
    some = np.random.default_rng(1).integers(0, 4, (ROWS, 1))
    for query in (some, np.arange(ROWS, dtype="float32")[:, None]):
        ranks = np.concatenate([query, np.round(relevance).astype(query.dtype)], 1)
        with pytest.raises(ValueError, match="numerator does not add up"):
            check(stack(DROPOUT(0.1)), weighted_loss(pairwise), (x, ranks, None))
        inputs = keras.Input((5,)), keras.Input((1,), dtype=query.dtype)
        mean = Layer(group_mean, name="groups")([keras.layers.Dense(4)(inputs[0]), inputs[1]])
        with pytest.raises(ValueError, match=r"'groups'.*depends on the other rows"):
            check(
                keras.Model(inputs, keras.layers.Dense(1)(mean)), data=((x, query), x[:, :1], None)
            )


def test_losses_of_several_outputs_are_named():
    x = keras.Input((5,))
    model = keras.Model(x, {"a": keras.layers.Dense(2)(x), "b": keras.layers.Dense(2)(x)})
    features, labels, _ = batch()
    data = (features, {"a": labels, "b": labels}, None)
    wrong = {"a": "mse", "b": lambda y, p: tf.reduce_sum(tf.nn.log_softmax(p, 0), -1)}
    with pytest.raises(ValueError, match="numerator of output 'b' does not add up"):
        check(model, wrong, data)
    assert check(model, {"a": "mse", "b": "mae"}, data)


def undone(layer, x):
    order = ops.argsort(x[:, 0])
    return ops.take(ops.take(x, order, axis=0), ops.argsort(order), axis=0)


RECURRENT = {"dropout": 0.3, "recurrent_dropout": 0.3}
INDEPENDENT = {
    "noise": lambda: stack(Noise(0.5, seed=3), Noise(0.5)),
    "dropout": lambda: stack(DROPOUT(0.5), keras.layers.AlphaDropout(0.6)),
    "undone": lambda: stack(Layer(undone)),
    "one_expert": lambda: stack(Layer(lambda _, x: x * ops.one_hot(ops.argmax(x, -1), 5))),
    "recurrent": lambda: stack(
        keras.layers.Reshape((5, 1)),
        keras.layers.Bidirectional(keras.layers.LSTM(3, **RECURRENT)),
    ),
    "one_mask": lambda: stack(DROPOUT(0.5, noise_shape=(1, 5))),
    "log_of_weight": lambda: stack(
        keras.layers.Dense(3, kernel_constraint="non_neg", kernel_initializer="ones"),
        Layer(lambda _, x: ops.log(ops.abs(x) + 1e-3)),
    ),
    "only_float32": lambda: stack(Layer(lambda _, x: x * tf.ones([1, 5]))),
    "float16": lambda: stack(keras.layers.Dense(3, dtype="mixed_float16")),
}


@pytest.mark.parametrize("kind", INDEPENDENT)
def test_independent_rows_are_accepted(kind, caplog):
    assert check(INDEPENDENT[kind]())
    assert not caplog.records


def test_text_is_compared():
    x = keras.Input((2,), dtype="string")
    ids = keras.layers.Hashing(16)(x)
    rows = keras.layers.Flatten()(keras.layers.Embedding(16, 3)(ids))
    words = np.array([["a", "b"], ["c", "a"], ["d", "e"]] * 4)
    data = (tf.constant(words), np.ones((12, 2), "float32"), None)
    assert check(keras.Model(x, keras.layers.Dense(2)(rows)), data=data)
    mixed = Layer(softmax)(rows)
    with pytest.raises(ValueError, match="other rows"):
        check(keras.Model(x, keras.layers.Dense(2)(mixed)), data=data)


def test_rows_without_a_loss_are_left_out(caplog):
    features, labels, _ = batch()
    labels[3], features[5] = np.nan, np.inf
    assert check(stack(), data=(features, labels, None))
    assert not caplog.records
    with pytest.raises(ValueError, match="'mixes'"):
        check(MIXING["mean"](), data=(features, labels, None))
    weights = np.zeros(ROWS, "float32")
    with pytest.raises(ValueError, match="'mixes'"):
        check(MIXING["mean"](), data=(*batch()[:2], weights))


def test_what_cannot_be_compared_is_reported_once(caplog):
    """Labels that are not finite; random numbers that are not drawn by rows; a strange loss."""

    def categorical(layer, x):
        return ops.one_hot(keras.random.categorical(x, 1, seed=3)[:, 0], 5)

    features, labels, _ = batch()
    models = [stack(), stack(Layer(categorical, name="draws")), stack()]
    for _ in range(2):
        check(models[0], data=(features, labels * np.nan, None))
        check(models[1])
        check(models[2], lambda y, p, w: 1 / 0)
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 3
    for message, reason in zip(warnings, ("finite", "draws", "ZeroDivision"), strict=True):
        assert "not checked" in message
        assert reason in message


@pytest.mark.parametrize("way", ["call", "run", "accumulate", "distributed"])
def test_every_way_to_train_checks_before_the_first_update(way, strategies):
    strategy = strategies["mirrored2" if way == "distributed" else "one_device"]
    with strategy.scope():
        model = MIXING["number_in_training_with_dropout"]()
        optimizer = keras.optimizers.SGD()
    step = TrainStep(model, optimizer, "mse", micro_batch_size=2, strategy=strategy)
    before = model.get_weights()
    dataset = tf.data.Dataset.from_tensor_slices(batch()[:2]).batch(9)
    if way == "run":
        train, data = (lambda data: step.run(data, 2)), iter(dataset)
    elif way == "accumulate":
        summed = functools.partial(accumulate_gradients, model, "mse", micro_batch_size=2)
        train, data = tf.function(lambda d: summed(*d), autograph=False), next(iter(dataset))
    elif way == "distributed":
        train, data = step, next(iter(strategy.experimental_distribute_dataset(dataset)))
    else:
        train, data = step, next(iter(dataset))
    with pytest.raises(ValueError, match=r"'mixes'.*depends on the other rows"):
        train(data)
    assert full_batch.error(model.get_weights()[:1], before[:1]) == 0


def test_run_checks_once_and_loses_no_row(monkeypatch):
    """One row cannot be checked; the second batch is the first of another call."""
    counted = []
    monkeypatch.setattr(
        "trainer_module.step.setup.check_rows",
        lambda *args: counted.append(describe.check_rows(*args)) or counted[-1],
    )
    dataset = tf.data.Dataset.from_tensor_slices(batch(rows=9)[:2])
    iterator = iter(dataset.take(1).batch(1).concatenate(dataset.skip(1).batch(2)))
    step = TrainStep(stack(), keras.optimizers.SGD(), "mse", micro_batch_size=2)
    rows = [step.run(iterator, steps).rows for steps in (1, 2, 1, 9)]
    assert rows == [1, 4, 2, 2]
    assert counted == [False, True]
