"""A schedule of the global batch size. Reference: batches cut by hand and SGD, in NumPy."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from trainer_module import ScaledLearningRate
from trainer_module.loop.callbacks import Callback
from trainer_module.loop.checkpoints import Checkpoints
from trainer_module.loop.training_loop import TrainingLoop
from trainer_module.model.optimizers import create_optimizer
from trainer_module.options.model_config import OptimizerConfig
from trainer_module.step.train_step import TrainStep

ROWS, EPOCHS = 23, 4
# Changes within an epoch, and at the begin of one: epochs have 6, 4, 4 and 3 batches.
SIZES = {0: 4, 4: 3, 6: 6, 12: 9}
PER_EPOCH = [[4, 4, 4, 4, 3, 3, 1][:7], [6, 6, 6, 5], [6, 9, 8], [9, 9, 5]]
_random = np.random.default_rng(1)
X = _random.normal(size=(ROWS, 3))
Y = X @ [[1.0], [-2.0], [0.5]] + _random.normal(size=(ROWS, 1))
W = _random.uniform(0.1, 2.0, ROWS)


def size_at(step, sizes=SIZES):
    return sizes[max(first for first in sizes if first <= step)]


def cut_by_hand(sizes=SIZES, epochs=EPOCHS, shuffle=True):
    """Return the row numbers of each global batch, by epoch."""
    found, step = [], 0
    for epoch in range(epochs):
        left = np.arange(ROWS)
        if shuffle:
            left = np.random.default_rng([0, epoch]).permutation(ROWS)
        found.append([])
        while len(left):
            size = size_at(step, sizes)
            found[-1].append(left[:size])
            left, step = left[size:], step + 1
    return found


def sgd_by_hand(rate_at, *, weights=W, **cut):
    """Return the weights of a linear model after SGD on weighted squared errors, in float64."""
    kernel, step = np.zeros([3, 1]), 0
    for batch in (b for epoch in cut_by_hand(**cut) for b in epoch):
        x, y, w = X[batch], Y[batch], weights[batch, np.newaxis]
        if w.any():
            kernel -= rate_at(step) * (2 * x.T @ (w * (x @ kernel - y)) / w.sum())
        step += 1
    return kernel


class Killed(Exception):
    """What SIGKILL would do, without ending the test."""


class Noting(Callback):
    """Notes the rows of each call, and ends the run after a step."""

    def __init__(self, kill_at=None):
        self.kill_at = kill_at
        self.rows, self.steps, self.totals, self.rates = [], [], set(), []

    def on_loop(self, progress):
        self.rows.append(progress.rows)
        self.steps.append(progress.steps)
        self.totals.add(progress.total_steps)
        self.rates.append(progress.learning_rate)
        if progress.step == self.kill_at:
            raise Killed


def loop(
    strategy, optimizer, folder=None, *, sizes=SIZES, noting=None, weights=W, epochs=EPOCHS, **more
):
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((3,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
        )
        made = optimizer()
    step = TrainStep(model, made, "mse", micro_batch_size=2, strategy=strategy)
    return TrainingLoop(
        step,
        (X, Y, weights),
        batch_size=sizes,
        epochs=epochs,
        callbacks=[noting or Noting()],
        checkpoints=folder
        and Checkpoints(str(folder), step, every_steps=1, keep=1, share_of_time=None),
        progress=False,
        **more,
    )


def sgd(rule="none", rate=2**-6):
    return lambda: keras.optimizers.SGD(
        rate if rule == "none" else ScaledLearningRate(rate, SIZES, rule)
    )


def test_epochs_end_with_the_remaining_rows():
    assert [[len(b) for b in epoch] for epoch in cut_by_hand()] == PER_EPOCH


@pytest.mark.parametrize("name", ["one_device", "mirrored3"])
@pytest.mark.parametrize(("rule", "exponent"), [("none", 0), ("linear", 1), ("sqrt", 0.5)])
def test_training_equals_numpy(strategies, float64, name, rule, exponent):
    """Tolerance: 1e-12 relative; sqrt: 1e-6, because Keras' rates are float32."""
    noting = Noting()
    trained = loop(strategies[name], sgd(rule), noting=noting)
    trained.fit()
    wanted = sgd_by_hand(lambda step: 2**-6 * (size_at(step) / 4) ** exponent)
    (kernel,) = trained.train_step.model.get_weights()
    np.testing.assert_allclose(kernel, wanted, rtol=1e-6 if rule == "sqrt" else 1e-12)
    assert sum(noting.rows) == ROWS * EPOCHS
    assert noting.totals == {sum(map(len, PER_EPOCH))}
    # No call of the graph has two sizes, and none of them needs another trace.
    assert all(rows <= size_at(sum(noting.steps[:n])) * noting.steps[n]
               for n, rows in enumerate(noting.rows))
    assert trained.train_step._loop_function.experimental_get_tracing_count() == 1
