"""Losses as numerator and denominator, against Keras' own numbers. Tolerance 1e-6 (float32).

Labels that a loss could misread in silence: each is made to fit, or refused.
"""

from __future__ import annotations

import functools
from typing import Any

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import TrainStep, weighted_loss
from trainer_module.losses.loss_values import _loss_names, zero_where_unweighted
from trainer_module.losses.weighted_loss import as_loss_function, loss_sums

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


def test_a_masked_value_that_is_not_finite_does_not_count():
    labels = np.array([[0.0], [1.0]])
    outputs = np.array([[1.0], [np.inf]])
    assert sums(weighted_loss("mse"), labels, outputs, np.array([1.0, 0.0])) == [1.0, 1.0]


def test_a_loss_for_the_whole_batch_is_refused():
    loss = weighted_loss(lambda labels, outputs: tf.reduce_mean(outputs))
    with pytest.raises(ValueError, match="one number for the whole batch"):
        loss(tf.zeros([2, 1]), tf.zeros([2, 1]))


def test_invalid_arguments_are_rejected():
    for call, message in [
        (lambda: weighted_loss("mse", reduction="max"), "reduction='max'"),
        (lambda: weighted_loss("mse", loss_weights=[1.0]), "needs one loss per output"),
        (lambda: weighted_loss(["mse", "mse"], loss_weights=[1.0]), "give one weight per output"),
        (lambda: weighted_loss(3), "loss=3: give a Keras loss"),
        (lambda: as_loss_function(lambda labels: labels), r"'<lambda>' takes \(labels\): give a f"),
        (lambda: as_loss_function(lambda a, b, c, d: a), r"takes \(a, b, c, d\): give a function"),
        (
            lambda: sums(as_loss_function(lambda y, p: (y, 6.0)), *CASES["huber"]),
            r"returned 2 things: .*or take \(labels, outputs, sample_w",
        ),
        (lambda: weighted_loss("mse")(TWO, TWO), "several parts, a, b: give one loss for each"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


def test_weights_below_0_have_no_mean():
    """Their shares of Σ w are no shares: NaN, so that a window of them is not finite."""
    labels, outputs = CASES["huber"]
    weights = np.array([1, 1, -0.5, 0, 2, 3], "float32")
    assert np.isnan(sums(weighted_loss("mse"), labels, outputs, weights)[1])
    two = weighted_loss({"a": "mse", "b": "mse"})
    labels_of, outputs_of = ({"a": x, "b": x} for x in (labels.astype("float32"), outputs))
    assert np.isnan(float(two(labels_of, outputs_of, weights)[1]))
    # By the number of rows they are what they are, as an advantage in policy gradients.
    numerator, denominator = sums(weighted_loss("mse", reduction="mean"), labels, outputs, weights)
    wanted = np.sum(weights * ((labels - outputs) ** 2)[:, 0])
    assert (numerator, denominator) == (pytest.approx(wanted, rel=1e-6), 6)


def test_own_functions_return_two_sums():
    for found, message in [
        (lambda y, p, w: tf.reduce_mean((y - p) ** 2), r"returned .*shape=\(\).*weighted_loss"),
        (lambda y, p, w: ((y - p)[:, 0] ** 2, 6.0), r"numerator has shape \(6,\): return the sum"),
        (lambda y, p, w: (1.0, tf.ones([6])), r"denominator has shape \(6,\)"),
        (lambda y, p, w: (tf.cast(1, "bfloat16"), 6.0), "numerator is bfloat16.*cast .* float32"),
        (lambda y, p, w: (1.0, tf.constant(6, "float16")), "denominator is float16"),
    ]:
        labels, outputs = (tf.constant(x, tf.float32) for x in CASES["huber"])
        with pytest.raises(ValueError, match=message):
            loss_sums(found, labels, outputs, None)


def test_weights_go_to_functions_that_ask_for_them():
    """A third argument with a default is a parameter of the loss, unless it is called weights."""
    for loss, takes_weights in [
        (lambda labels, outputs: (labels - outputs)[:, 0] ** 2, False),
        (lambda labels, outputs, smooth=1.0: (labels - outputs)[:, 0] ** 2 / smooth, False),
        (functools.partial(lambda a, b, power: (a - b)[:, 0] ** power, power=2), False),
        (lambda labels, outputs, w=None: (tf.reduce_sum(w), 7.0), True),
        (lambda labels, outputs, sample_weights=None: (tf.reduce_sum(sample_weights), 7.0), True),
        (lambda labels, outputs, anything: (tf.reduce_sum(anything), 7.0), True),
        (lambda *arguments: (tf.reduce_sum(arguments[2]), 7.0), True),
    ]:
        labels, outputs = CASES["huber"]
        weights = np.array([1, 1, 2, 0, 2, 3], "float32")
        found = sums(as_loss_function(loss), labels, outputs, weights)
        squares = float(np.sum(weights * ((labels - outputs) ** 2)[:, 0]))
        assert found == pytest.approx([9.0, 7.0] if takes_weights else [squares, 9.0], rel=1e-6)


TWO = {"a": tf.zeros([2, 1]), "b": tf.zeros([2, 1])}


def test_several_outputs_need_their_labels_and_one_weight_per_row():
    for labels, outputs, weights, message in [
        ({"a": TWO["a"]}, TWO, None, "output 'b', but labels have 'a'"),
        (TWO, {"a": TWO["a"]}, None, "output 'b', but the model's outputs have 'a'"),
        (TWO["a"], TWO, None, "output 'a', but labels are not a dict or a list"),
        (TWO, TWO, {"a": TWO["a"]}, "output 'b', but sample_weight have 'a'"),
        (TWO, TWO, tf.zeros([2, 3]), "have more axes than losses"),
    ]:
        per_row = {key: lambda y, p: tf.reduce_sum((y - p) ** 2, -1) for key in "ab"}
        with pytest.raises(ValueError, match=message):
            weighted_loss(per_row)(labels, outputs, weights)


ALL_LOSSES = {name: getattr(keras.losses, name, None) for name in _loss_names()}
CLASSES = {name: found for name, found in ALL_LOSSES.items() if isinstance(found, type)}
AXIS = {"Dice", "Tversky"}  # of a whole batch without an axis
REFUSED = {*AXIS, "Circle", "circle", "dice", "tversky", "categorical_generalized_cross_entropy"}


def test_each_function_of_keras_is_that_of_a_class():
    of_classes = {loss().fn for loss in CLASSES.values()}
    others = set(ALL_LOSSES) - set(CLASSES) - REFUSED
    assert {keras.losses.get(name) for name in others} <= of_classes


@pytest.mark.parametrize("names", ["rows", "sequences"])
def test_each_loss_of_keras_is_exact_in_micro_batches(names):
    """One step, an output for each class. Reference: a tape of Keras' losses per row."""
    chosen = {"CTC"} if names == "sequences" else set(CLASSES) - {"CTC", "Circle"}
    options = {name: {"axis": -1} if name in AXIS else {} for name in chosen}
    # CTC is computed in float32 in any precision.
    precision, tolerance = ("float32", 1e-5) if names == "sequences" else ("float64", 1e-12)
    random, rows = np.random.default_rng(0), 8
    shape = (10, 3) if names == "sequences" else (3,)
    weights = random.uniform(size=rows)
    with full_batch.precision(precision):
        x = keras.Input(shape)
        units = [keras.layers.Dense(5, "softmax", name=name)(x) for name in sorted(chosen)]
        model = keras.Model(x, dict(zip(sorted(chosen), units, strict=True)))
        labels: dict[str, Any] = {name: random.dirichlet(np.ones(5), rows) for name in chosen}
        for name in chosen:
            if name.lower().startswith(("sparse", "categoricalgen")):
                labels[name] = random.integers(0, 5, rows)
            if name == "CTC":
                labels[name] = random.integers(1, 5, (rows, 4))
        features = random.normal(size=(rows, *shape)).astype(precision)
        with tf.GradientTape() as tape:
            outputs = model(features)
            losses = [
                CLASSES[name](reduction=None, **options[name])(labels[name], outputs[name])
                for name in sorted(chosen)
            ]
            means = [tf.reduce_sum(each * weights) / np.sum(weights) for each in losses]
        wanted = tape.gradient(means, [v.value for v in model.trainable_variables])
        before = model.get_weights()
        step = TrainStep(
            model,
            keras.optimizers.SGD(1.0),
            {name: CLASSES[name](**options[name]) for name in chosen},
            micro_batch_size=3,
        )
        loss = step((features, labels, weights)).loss
    assert float(loss) == pytest.approx(float(sum(means)), rel=tolerance)
    for old, new, gradient in zip(before, model.get_weights(), wanted, strict=True):
        scale = np.abs(gradient).max()
        np.testing.assert_allclose(old - new, gradient, rtol=0, atol=tolerance * max(1, scale))


def test_losses_that_are_not_of_a_row_are_refused_by_name():
    for name in sorted(REFUSED & set(ALL_LOSSES)):
        with pytest.raises(ValueError, match=f"(?i)loss .*{name}"):
            weighted_loss(name)(tf.zeros([4, 2]), tf.ones([4, 2]))


random_of_labels = np.random.default_rng(0)
FEATURES = random_of_labels.normal(size=(6, 5)).astype("float32")
LABELS = random_of_labels.normal(size=(6, 1)).astype("float32")


def loss_and_gradient(loss, labels, outputs, weights=None):
    """Returns the weighted mean of one batch and its gradient by the outputs."""
    outputs = tf.constant(outputs)
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        numerator, denominator = weighted_loss(loss)(tf.constant(labels), outputs, weights)
        value = numerator / denominator
    return float(value), tape.gradient(value, outputs).numpy()


def test_one_number_per_row_fits_with_or_without_its_own_axis():
    """Pitfall: [6] against [6, 1] broadcasts to [6, 6]. Reference: NumPy, 1e-6."""
    for output_axes in [1, 2]:
        for label_axes in [1, 2]:
            for loss in ["mse", lambda labels, outputs: (labels - outputs) ** 2]:
                labels, outputs = LABELS, FEATURES[:, :1]
                wanted = np.mean((labels - outputs) ** 2)
                assert abs(np.mean((labels[:, 0] - outputs) ** 2) - wanted) > 0.1
                found, gradient = loss_and_gradient(
                    loss, labels.reshape([6, 1][:label_axes]), outputs.reshape([6, 1][:output_axes])
                )
                assert found == pytest.approx(wanted, rel=1e-6)
                assert gradient[:, None].reshape(6) == pytest.approx(
                    (outputs - labels)[:, 0] / 3, rel=1e-6
                )


def datasets(labels, shape):
    """Labels of which the graph knows only `shape`."""

    def forget(x, y):
        return x, tf.ensure_shape(tf.py_function(lambda t: t, [y], tf.float32), shape)

    return tf.data.Dataset.from_tensor_slices((FEATURES, labels)).batch(6).map(forget)


def step():
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
    return TrainStep(model, keras.optimizers.SGD(0.1), "mse", micro_batch_size=2)


def test_labels_that_would_broadcast_only_when_it_runs_are_refused_then():
    labels = np.ones((6, 3), "float32")
    with pytest.raises(tf.errors.InvalidArgumentError, match="reshape"):
        step().run(iter(datasets(labels, [None, None])), 1)
    assert step().run(iter(datasets(LABELS, [None, None])), 1).rows == 6


def test_labels_of_unknown_rank_are_refused():
    with pytest.raises(ValueError, match=r"labels hold a tensor of unknown rank.*ensure_shape"):
        step().run(iter(datasets(LABELS, None)), 1)
    loss, unknown = tf.function(weighted_loss("mse")), tf.TensorSpec(None, tf.float32)
    with pytest.raises(ValueError, match="a rank is unknown"):
        loss.get_concrete_function(unknown, unknown)


def test_where_the_weight_is_0_a_label_may_be_nan():
    """Reference: the same rows without that one. 0 · NaN would be a NaN gradient."""
    for axes in [1, 2]:
        labels, weights = (
            LABELS.copy(),
            np.array([1, 2, 0, 1, 1, 3], "float32").reshape([6, 1][:axes]),
        )
        labels[2] = np.nan
        kept = weights.ravel() > 0
        found, gradient = loss_and_gradient("mse", labels, FEATURES[:, :1], weights)
        wanted, slopes = loss_and_gradient("mse", labels[kept], FEATURES[kept, :1], weights[kept])
        assert found == pytest.approx(wanted, rel=1e-6)
        np.testing.assert_allclose(gradient[kept], slopes, rtol=1e-6)
        assert gradient[2] == 0


def test_where_the_weight_is_0_a_class_may_be_unknown():
    """Tokens of class -1, which TensorFlow's cross entropy refuses on CPU and makes NaN on GPU."""
    classes, logits = np.array([[0, 2, -1], [1, -1, -1]]), random_of_labels.normal(size=(2, 3, 4))
    counted = classes >= 0
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    found, gradient = loss_and_gradient(loss, classes, logits, counted.astype("float32"))
    wanted, slopes = loss_and_gradient(loss, classes[counted], logits[counted])
    assert found == pytest.approx(wanted, rel=1e-6)
    np.testing.assert_allclose(gradient[counted], slopes, rtol=1e-6)


def test_weights_that_do_not_fit_labels_leave_them_alone():
    labels = tf.constant([[1.0], [2.0]])
    for weights in (None, np.zeros((2, 3)), np.zeros((2, 1, 4))):
        assert zero_where_unweighted(labels, weights) is labels
