"""The gradient noise scale of `TrainStep(gradient_noise_scale=...)`.

References: the formula in NumPy float64 on the gradient of each row (1e-10 relative), and rows
whose true noise scale is known (5 % over 400 windows).
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import TrainStep
from trainer_module.loop.progress_log import _batch_size_advice

pytestmark = pytest.mark.usefixtures("float64")


def linear_model(dtype="float64"):
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(2, dtype=dtype, kernel_regularizer="l2")]
    )


def make_step(model, strategy=None, *, every=1, micro_batch_size=4, rate=0.0, **options):
    return TrainStep(
        model,
        keras.optimizers.SGD(rate),
        "mse",
        micro_batch_size=micro_batch_size,
        strategy=strategy,
        gradient_noise_scale=every,
        **options,
    )


def random_batch(rows, seed=0):
    random = np.random.default_rng(seed)
    weights = random.uniform(0.5, 2.0, rows)
    return random.normal(size=(rows, 3)), random.normal(size=(rows, 2)), weights


def row_gradients(model, x, y, w):
    """Return w_i ∇l_i of each row as `[rows, parameters]`, from the closed form of the squares."""
    kernel, bias = model.get_weights()
    slope = w[:, None] * (x @ kernel + bias - y)
    return np.concatenate([np.einsum("ni,no->nio", x, slope).reshape(len(x), -1), slope], 1)


def expected(rows, passes):
    """Return |G|² and tr Σ by the module's formula; `passes` is the rows of each pass."""
    parts = np.split(rows, np.cumsum(passes)[:-1])
    squares = sum((part.sum(0) ** 2).sum() for part in parts)
    counts = sum(n**2 for n in passes)
    total = len(rows)
    signal = ((rows.sum(0) ** 2).sum() - squares) / (total**2 - counts)
    return signal, (squares - signal * counts) / total


@pytest.mark.parametrize("kind", ["none", "mirrored2"])
def test_equals_numpy_with_ragged_micro_batches_and_weights(kind, strategies):
    strategy = strategies[kind]
    with strategy.scope():
        model = linear_model()
        step = make_step(model, strategy)
    x, y, w = random_batch(11)
    step((x, y, w))
    passes = [4, 4, 3] if kind == "none" else [4, 1, 4, 2]
    first = np.array(expected(row_gradients(model, x, y, w), passes))
    np.testing.assert_allclose(step._noise.values.numpy(), 0.1 * first, 1e-10)
    np.testing.assert_allclose(step.noise_scale, max(first[1] / first[0], 0.0), 1e-10)
    if kind == "mirrored2":  # two replicas are enough without micro-batches
        x, y, w = random_batch(8, seed=1)
        step((x, y, w))
        second = np.array(expected(row_gradients(model, x, y, w), [4, 4]))
        np.testing.assert_allclose(step._noise.values.numpy(), 0.09 * first + 0.1 * second, 1e-10)


def test_is_unbiased_where_the_truth_is_known():
    """Gradients of the mean output are the features: |G|² = 3 · 0.5², tr Σ = 3, so 4 rows."""
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(1, use_bias=False, dtype="float64")]
    )
    step = TrainStep(
        model,
        keras.optimizers.SGD(0.0),
        lambda labels, outputs: outputs[:, 0],
        micro_batch_size=5,
        gradient_noise_scale=1,
    )
    random = np.random.default_rng(0)
    estimates, previous = [], np.zeros(2)
    for _ in range(400):
        step((0.5 + random.normal(size=(64, 3)), np.zeros([64, 1])))
        values = step._noise.values.numpy()
        estimates.append((values - 0.9 * previous) / 0.1)
        previous = values
    signal, noise = np.mean(estimates, 0)
    np.testing.assert_allclose([signal, noise], [0.75, 3.0], 0.05)


def test_float16_undoes_the_loss_scale():
    found = {}
    for dtype in ("mixed_float16", "float64"):
        model = linear_model(dtype)
        model.set_weights([0.5 * np.ones([3, 2]), np.ones([2])])
        step = make_step(model)
        for _ in range(4):  # the first windows overflow until the loss scale fits
            step(random_batch(12))
        found[dtype] = step.noise_scale
    assert found["mixed_float16"] == pytest.approx(found["float64"], rel=0.02)


def test_measures_every_nth_window():
    step = make_step(linear_model(), every=2)
    step(random_batch(12, 0))
    of_first = step._noise.values.numpy()
    assert np.all(of_first != 0)
    step(random_batch(12, 1))
    np.testing.assert_array_equal(step._noise.values.numpy(), of_first)


def test_one_micro_batch_gives_no_estimate_but_a_warning(caplog):
    step = make_step(linear_model(), micro_batch_size=12)
    batches = iter(tf.data.Dataset.from_tensor_slices(random_batch(12)).batch(12))
    report = step.run(batches, 1)
    assert np.isnan(report.noise_scale)
    assert "gradient_noise_scale=1" in caplog.text
    assert "micro_batch_size (now 12)" in caplog.text


def test_outputs_with_separate_weights_are_refused():
    inputs = keras.Input((3,))
    model = keras.Model(inputs, [keras.layers.Dense(1, name=name)(inputs) for name in "ab"])
    step = TrainStep(
        model,
        keras.optimizers.SGD(0.0),
        ["mse", "mse"],
        micro_batch_size=4,
        gradient_noise_scale=1,
    )
    x, w = np.ones([8, 3]), np.linspace(0.5, 1.0, 8)
    with pytest.raises(ValueError, match="gradient_noise_scale with outputs"):
        step((x, [x[:, :1], x[:, :1]], [w, w[::-1]]))


def test_a_negative_estimate_of_the_noise_is_a_scale_of_0():
    """Micro-batches of 3 rows and 1 row with the same sum: tr Σ = -|G|²."""
    step = make_step(linear_model(), micro_batch_size=3)
    step((np.ones([4, 3]), np.full([4, 2], 5.0), np.array([2, 2, 2, 6]) / 3))
    signal, noise = step._noise.values.numpy()
    np.testing.assert_allclose(noise, -signal, rtol=1e-9)
    assert step.noise_scale == 0.0


def test_advice_follows_the_formula_of_the_paper():
    assert _batch_size_advice(float("nan"), 256) == ""
    assert _batch_size_advice(512, 0.0) == ""  # the last windows had no rows
    assert "512 rows, global batch 256: with twice the batch, about 67%" in _batch_size_advice(
        512, 256
    )
