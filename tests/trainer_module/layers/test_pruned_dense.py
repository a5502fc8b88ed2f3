"""PrunedDense and the callback Prune.

References: the schedule of Zhu and Gupta (2017) and the selection by size, in NumPy.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import (
    Callback,
    Checkpoints,
    EarlyStopping,
    Evaluation,
    Prune,
    PrunedDense,
    TrainingLoop,
    TrainStep,
)

X = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
Y = X.sum(axis=1, keepdims=True)


def expected_sparsity(step: int, final: float, begin: int, end: int, every: int) -> float:
    """The share after the last update that is not after `step`, by a loop over the steps."""
    share = 0.0
    for t in range(begin, min(step, end) + 1):
        if (t - begin) % every == 0 or t == end:
            share = final + (0.0 - final) * (1 - (t - begin) / (end - begin)) ** 3
    return share


@pytest.mark.parametrize("schedule", [(0.8, 0, 20, 5), (0.5, 7, 20, 4), (0.9, 3, 4, 100)])
def test_the_schedule_is_that_of_zhu_and_gupta(schedule):
    layer = PrunedDense(4, *schedule)
    _, begin, end, every = schedule
    due = sorted({*range(begin, end, every), end})
    for step in range(30):
        share = expected_sparsity(step, *schedule)
        assert layer.scheduled_sparsity(step) == pytest.approx(share, abs=1e-12)
        later = [t for t in due if t > step]
        assert layer.steps_until_due(step) == (later[0] - step if later else None)


def test_the_smallest_weights_are_removed_and_stay_removed():
    layer = PrunedDense(6, 0.75, 0, 12, 3)
    layer.build((None, 8))
    random = np.random.default_rng(1)
    removed = np.zeros(48, bool)
    for step in range(14):
        layer.kernel.assign(random.normal(size=(8, 6)))  # as if training had changed all of them
        sizes = np.abs(layer.kernel.numpy()).ravel()
        count = round(expected_sparsity(step, 0.75, 0, 12, 3) * 48)
        candidates = [i for i in np.argsort(sizes) if not removed[i]]
        new = candidates[: count - removed.sum()]
        assert layer.prune(step) == bool(len(new))
        removed[new] = True
        np.testing.assert_array_equal(layer.mask.numpy().ravel() == 0, removed)
        assert not layer.prune(step)
    assert removed.sum() == 36
    kernel = np.where(removed.reshape(8, 6), 0, layer.kernel.numpy())
    np.testing.assert_allclose(layer(X), X @ kernel, atol=1e-5)


def test_weights_of_equal_size_are_removed_in_their_order():
    layer = PrunedDense(2, 0.5, 0, 1)
    layer.build((None, 2))
    layer.kernel.assign([[1.0, -1.0], [1.0, 1.0]])
    layer.prune(1)
    np.testing.assert_array_equal(layer.mask, [[0, 0], [1, 1]])


class Watch(Callback):
    """Note the removed weights' share in the kernel that the layer uses, after each call."""

    def __init__(self, layer):
        self.layer, self.seen, self.removed = layer, {}, np.zeros(layer.mask.shape, bool)

    def on_loop(self, progress):
        mask = self.layer.mask.numpy()
        assert not mask[self.removed].any()  # none returns
        self.removed = mask == 0
        outputs = self.layer(np.eye(8, dtype="float32")).numpy()  # kernel * mask, row by row
        bias = self.layer(np.zeros((1, 8), "float32")).numpy()
        assert not (outputs - bias)[self.removed].any()
        self.seen[progress.step] = float(self.removed.mean())


def pruned_loop(folder=None, optimizer=None, epochs=4, strategy=None, **options):
    """A loop of 4 steps per epoch, and its layer of 32 weights."""
    strategy = strategy or tf.distribute.get_strategy()
    with strategy.scope():
        layer = PrunedDense(4, 0.75, 2, 11, 3, name="pruned")
        model = keras.Sequential([keras.Input((8,)), layer, keras.layers.Dense(1)])
        optimizer = optimizer or keras.optimizers.SGD(0.05, momentum=0.9)
    step = TrainStep(model, optimizer, "mse", micro_batch_size=8, strategy=strategy, **options)
    saved = None if folder is None else Checkpoints(str(folder), step, every_steps=5)
    watch = Watch(layer)
    loop = TrainingLoop(
        step,
        (X, Y),
        batch_size=16,
        epochs=epochs,
        callbacks=[Prune(model), watch],
        checkpoints=saved,
        progress=False,
        steps_per_loop=100,
    )
    return loop, layer, watch


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: keras.optimizers.SGD(0.05, momentum=0.9, weight_decay=0.1),
        lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1),
    ],
    ids=["momentum", "adamw"],
)
def test_removed_weights_stay_0_in_training(optimizer):
    loop, layer, watch = pruned_loop(optimizer=optimizer(), ema_momentum=0.9)
    loop.fit()
    shares = {step: round(expected_sparsity(step, 0.75, 2, 11, 3) * 32) / 32 for step in watch.seen}
    assert watch.seen == shares
    assert {2, 5, 8, 11, 16} <= set(shares)  # calls of the graph end where a mask is due
    assert np.mean(layer.mask.numpy() == 0) == 0.75


def test_replicas_prune_as_one_device(strategies):
    """SGD's sums differ by rounding alone: the same weights are removed."""
    weights = []
    for strategy in (strategies["one_device"], strategies["mirrored2"]):
        keras.utils.set_random_seed(0)
        loop, layer, _ = pruned_loop(strategy=strategy)
        loop.fit()
        weights.append((layer.mask.numpy(), loop.train_step.model.get_weights()))
    np.testing.assert_array_equal(weights[0][0], weights[1][0])
    for one, other in zip(weights[0][1], weights[1][1], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.fixture(scope="module")
def of_whole_run():
    """The weights of a run in one piece."""
    keras.utils.set_random_seed(0)
    loop, _, _ = pruned_loop()
    loop.fit()
    return loop.train_step.model.get_weights()


@pytest.mark.parametrize("killed_at", [6, 12])
def test_a_killed_run_ends_with_the_same_masks(tmp_path, of_whole_run, killed_at):
    """After the checkpoints of steps 5 and 10, with one mask due and with the last one."""
    keras.utils.set_random_seed(0)
    loop, layer, watch = pruned_loop(tmp_path / "killed")

    def kill(progress):
        if progress.step >= killed_at:
            raise KeyboardInterrupt

    watch.on_loop = kill
    with pytest.raises(KeyboardInterrupt):
        loop.fit()
    keras.utils.set_random_seed(7)  # other initial weights: the checkpoint replaces them
    loop, layer, _ = pruned_loop(tmp_path / "killed")
    loop.fit()
    for weight, expected in zip(loop.train_step.model.get_weights(), of_whole_run, strict=True):
        np.testing.assert_array_equal(weight, expected)
    assert np.mean(layer.mask.numpy() == 0) == 0.75


def test_the_best_epoch_has_its_own_mask():
    """EarlyStopping restores the weights of the first epoch, before most weights are removed."""
    loop, layer, _ = pruned_loop()
    model = loop.train_step.model
    evaluate = Evaluation(model, "mse", tf.data.Dataset.from_tensors((X, Y)))
    stop = EarlyStopping(model, patience_epochs=1, min_delta=1e9)
    callbacks = [Prune(model), stop]
    options = {"batch_size": 16, "epochs": 4, "evaluate": evaluate, "progress": False}
    result = TrainingLoop(loop.train_step, (X, Y), callbacks=callbacks, **options).fit()
    assert (result.stopped, result.steps) == ("early_stopping", 8)
    share = round(expected_sparsity(4, 0.75, 2, 11, 3) * 32) / 32
    assert np.mean(layer.mask.numpy() == 0) == share


def test_prune_needs_a_pruned_layer():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)], name="plain")
    with pytest.raises(ValueError, match="'plain' has no PrunedDense"):
        Prune(model)
    unbuilt = keras.Sequential([PrunedDense(4, 0.5, 0, 10, name="unbuilt")])
    with pytest.raises(ValueError, match="'unbuilt' is not built"):
        Prune(unbuilt)
