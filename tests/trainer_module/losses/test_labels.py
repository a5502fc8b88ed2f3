"""Labels that a loss could misread in silence: each is made to fit, or refused."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import TrainStep, weighted_loss
from trainer_module.losses.labels import zero_where_unweighted

random = np.random.default_rng(0)
FEATURES = random.normal(size=(6, 5)).astype("float32")
LABELS = random.normal(size=(6, 1)).astype("float32")


def loss_and_gradient(loss, labels, outputs, weights=None):
    """Returns the weighted mean of one batch and its gradient by the outputs."""
    outputs = tf.constant(outputs)
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        numerator, denominator = weighted_loss(loss)(tf.constant(labels), outputs, weights)
        value = numerator / denominator
    return float(value), tape.gradient(value, outputs).numpy()


@pytest.mark.parametrize("loss", ["mse", lambda labels, outputs: (labels - outputs) ** 2])
@pytest.mark.parametrize("label_axes", [1, 2])
@pytest.mark.parametrize("output_axes", [1, 2])
def test_one_number_per_row_fits_with_or_without_its_own_axis(loss, label_axes, output_axes):
    """Pitfall: [6] against [6, 1] broadcasts to [6, 6]. Reference: NumPy, 1e-6."""
    labels, outputs = LABELS, FEATURES[:, :1]
    wanted = np.mean((labels - outputs) ** 2)
    assert abs(np.mean((labels[:, 0] - outputs) ** 2) - wanted) > 0.1
    found, gradient = loss_and_gradient(
        loss, labels.reshape([6, 1][:label_axes]), outputs.reshape([6, 1][:output_axes])
    )
    assert found == pytest.approx(wanted, rel=1e-6)
    assert gradient[:, None].reshape(6) == pytest.approx((outputs - labels)[:, 0] / 3, rel=1e-6)


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


@pytest.mark.parametrize("axes", [1, 2])
def test_where_the_weight_is_0_a_label_may_be_nan(axes):
    """Reference: the same rows without that one. 0 · NaN would be a NaN gradient."""
    labels, weights = LABELS.copy(), np.array([1, 2, 0, 1, 1, 3], "float32").reshape([6, 1][:axes])
    labels[2] = np.nan
    kept = weights.ravel() > 0
    found, gradient = loss_and_gradient("mse", labels, FEATURES[:, :1], weights)
    wanted, slopes = loss_and_gradient("mse", labels[kept], FEATURES[kept, :1], weights[kept])
    assert found == pytest.approx(wanted, rel=1e-6)
    np.testing.assert_allclose(gradient[kept], slopes, rtol=1e-6)
    assert gradient[2] == 0


def test_where_the_weight_is_0_a_class_may_be_unknown():
    """Tokens of class -1, which TensorFlow's cross entropy refuses on CPU and makes NaN on GPU."""
    classes, logits = np.array([[0, 2, -1], [1, -1, -1]]), random.normal(size=(2, 3, 4))
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
