"""A schedule of the global batch size. Reference: batches cut by hand and SGD, in NumPy."""

from __future__ import annotations

import itertools

import keras
import numpy as np
import pytest
from killed_loop import EndsAt

from trainer_module import ScaledLearningRate
from trainer_module.loop.callback import Callback
from trainer_module.loop.checkpoints import Checkpoints
from trainer_module.loop.training_loop import TrainingLoop
from trainer_module.model.optimizers import create_optimizer
from trainer_module.options.run_options import LoopOptions
from trainer_module.options.settings import parse_section
from trainer_module.options.task_options import OptimizerConfig
from trainer_module.step.train_step import TrainStep

ROWS, EPOCHS = 23, 4
# The size changes twice in the first epoch, at its last batch, and in the third epoch.
SIZES = {0: 4, 4: 3, 6: 6, 12: 9}
PER_EPOCH = [[4, 4, 4, 4, 3, 3, 1], [6, 6, 6, 5], [6, 9, 8], [9, 9, 5]]
_random = np.random.default_rng(1)
X = _random.normal(size=(ROWS, 3))
Y = X @ [[1.0], [-2.0], [0.5]] + _random.normal(size=(ROWS, 1))
W = _random.uniform(0.1, 2.0, ROWS)


def size_at(step):
    return SIZES[max(first for first in SIZES if first <= step)]


def cut_by_hand():
    """Return the row numbers of each global batch, by epoch."""
    found, step = [], 0
    for epoch in range(EPOCHS):
        left = np.random.default_rng([0, epoch]).permutation(ROWS)
        found.append([])
        while len(left):
            size = size_at(step)
            found[-1].append(left[:size])
            left, step = left[size:], step + 1
    return found


def sgd_by_hand(rate_at, *, weights=W):
    """Return the weights of a linear model after SGD on weighted squared errors, in float64."""
    kernel = np.zeros([3, 1])
    for step, batch in enumerate(itertools.chain(*cut_by_hand())):
        x, y, w = X[batch], Y[batch], weights[batch, np.newaxis]
        if w.any():
            kernel -= rate_at(step) * (2 * x.T @ (w * (x @ kernel - y)) / w.sum())
    return kernel


class Noting(Callback):
    """Notes each call of the graph."""

    def __init__(self):
        self.calls = []

    def on_loop(self, progress):
        self.calls.append(progress)


def train_step(optimizer, strategy):
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((3,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
        )
        made = optimizer()
    return TrainStep(model, made, "mse", micro_batch_size=2, strategy=strategy)


def loop(step, folder=None, *callbacks, weights=W, epochs=EPOCHS):
    saved = folder and Checkpoints(str(folder), step, every_steps=1, keep=1, share_of_time=None)
    return TrainingLoop(
        step,
        (X, Y, weights),
        batch_size=SIZES,
        epochs=epochs,
        callbacks=callbacks,
        checkpoints=saved,
        progress=False,
    )


def sgd(rule):
    rate = 2**-6
    return lambda: keras.optimizers.SGD(
        rate if rule == "none" else ScaledLearningRate(rate, SIZES, rule)
    )


def rate_by_hand(exponent):
    return lambda step: 2**-6 * (size_at(step) / SIZES[0]) ** exponent


@pytest.mark.parametrize(("rule", "exponent"), [("none", 0), ("linear", 1), ("sqrt", 0.5)])
def test_training_equals_numpy(strategies, float64, rule, exponent):
    """Tolerance: 1e-12 relative; sqrt: 1e-6, because Keras' rates are float32.

    The first window has no weight, so that the optimizer counts one update less than windows.
    """
    weights = np.where(np.isin(np.arange(ROWS), cut_by_hand()[0][0]), 0.0, W)
    step, noting = train_step(sgd(rule), strategies["one_device"]), Noting()
    assert loop(step, None, noting, weights=weights).fit().skipped["empty"] == 1
    wanted = sgd_by_hand(rate_by_hand(exponent), weights=weights)
    tolerance = 1e-6 if rule == "sqrt" else 1e-12
    np.testing.assert_allclose(step.model.get_weights()[0], wanted, rtol=tolerance)
    assert sum(call.rows for call in noting.calls) == ROWS * EPOCHS
    for call in noting.calls:  # of one size each, in the same graph
        assert call.total_steps == sum(map(len, PER_EPOCH))
        assert size_at(call.step - call.steps) == size_at(call.step - 1)
    assert step._loop_function.experimental_get_tracing_count() == 1


def test_a_run_resumes_on_other_replicas_with_the_same_global_batches(
    strategies, float64, tmp_path
):
    """Tolerance: 1e-12 relative."""
    killed = train_step(sgd("linear"), strategies["none"])
    with pytest.raises(KeyboardInterrupt):
        loop(killed, tmp_path, EndsAt(5), epochs=2).fit()
    step = train_step(sgd("linear"), strategies["mirrored2"])
    loop(step, tmp_path).fit()
    wanted = sgd_by_hand(rate_by_hand(1))
    np.testing.assert_allclose(step.model.get_weights()[0], wanted, rtol=1e-12)


def test_a_configured_schedule_follows_the_sizes():
    config = OptimizerConfig.model_validate(
        {"name": "adamw", "learning_rate": 0.01, "schedule": {"name": "cosine", "warmup_steps": 3}}
    )
    scaled = create_optimizer(config, 17, batch_sizes=SIZES, scaling="sqrt")._learning_rate
    plain = create_optimizer(config, 17)._learning_rate
    assert [float(scaled(n)) for n in range(1, 18)] == pytest.approx(
        [float(plain(n)) * (size_at(n) / 4) ** 0.5 for n in range(1, 18)], rel=1e-6
    )


def test_invalid_schedules_are_rejected():
    for change, message in [
        ({"sizes": {5: 4, 7: 8}}, r"batch_size: sizes from 5, 7, and none from step 0; add it"),
        ({"sizes": {}}, r"batch_size: sizes from no step, and none from step 0"),
        ({"sizes": {0: 4, 2: 0}}, r"batch_size: 0 at step 2 is not a size; use at least 1 row"),
        ({"sizes": {0: 4, -2: 8}}, r"batch_size: -2 is not a step; use whole numbers from 0"),
        ({"sizes": {0: 4, 1.5: 8}}, r"batch_size: 1.5 is not a step"),
        ({"sizes": {0: 4, True: 8}}, r"batch_size: True is not a step"),
        ({"sizes": {0: 4, 3: 8, "3": 9}}, r"batch_size: step 3 appears twice"),
        ({"sizes": [4, 8]}, r"batch_size=\[4, 8\]: use .* or sizes by step such as {0: 256,"),
        ({"steps_per_epoch": 3}, r"steps_per_epoch=3 with a schedule .* leave out steps_per_epoch"),
    ]:
        options = {"batch_size": change.pop("sizes", SIZES), "epochs": 1, **change}
        with pytest.raises(ValueError, match=message):
            parse_section(LoopOptions, options, section="")


def test_scaled_rates_check_their_arguments_and_keep_them():
    with pytest.raises(ValueError, match="rule='cubic': use one of linear, sqrt"):
        ScaledLearningRate(0.1, SIZES, "cubic")  # pyright: ignore
    with pytest.raises(ValueError, match=r"batch_sizes=\{3: 4\}: sizes from 3, and none"):
        ScaledLearningRate(0.1, {3: 4}, "linear")
    rate = ScaledLearningRate(keras.optimizers.schedules.CosineDecay(0.5, 20), SIZES, "linear")
    again = keras.optimizers.SGD.from_config(keras.optimizers.SGD(rate).get_config())
    for step in (0, 4, 13):
        again.iterations.assign(step)
        decay = 0.25 * (1 + np.cos(np.pi * step / 20))
        assert float(again.learning_rate) == pytest.approx(decay * size_at(step) / 4, rel=1e-6)
