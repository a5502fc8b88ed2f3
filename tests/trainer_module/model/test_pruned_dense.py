"""PrunedDense, the callback Prune, and `model.sparsity`.

References: the schedule of Zhu and Gupta (2017) and the selection by size, in NumPy; of training,
full_batch.train (one device, one full batch, float64) to 1e-12; of a saved model the model itself,
bit for bit; of an export the model, to 1e-6.
"""

from __future__ import annotations

import re
import subprocess
import sys

import exactness
import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf
from cells import Cell

from trainer_module import (
    Callback,
    Checkpoints,
    EarlyStopping,
    Evaluation,
    ModelContext,
    Prune,
    PrunedDense,
    TrainerConfig,
    TrainingLoop,
    TrainStep,
)
from trainer_module.loop.run_fingerprint import _model_fingerprint, check_fingerprint
from trainer_module.model.default_model import _pruning_schedule
from trainer_module.model.plan import resolve
from trainer_module.options.run_options import LoopOptions
from trainer_module.options.step_options import StepOptions

X = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
Y = X.sum(axis=1, keepdims=True)


def expected_sparsity(step: int, final: float, begin: int, end: int, every: int) -> float:
    """The share after the last update that is not after `step`, by a loop over the steps."""
    share = 0.0
    for t in range(begin, min(step, end) + 1):
        if (t - begin) % every == 0 or t == end:
            share = final + (0.0 - final) * (1 - (t - begin) / (end - begin)) ** 3
    return share


def test_the_schedule_is_that_of_zhu_and_gupta():
    for schedule in [(0.8, 0, 20, 5), (0.5, 7, 20, 4), (0.9, 3, 4, 100)]:
        _, begin, end, every = schedule
        due = sorted({*range(begin, end, every), end})
        for step in range(30):
            layer = PrunedDense(10, *schedule)
            layer.build((None, 100))
            layer.prune(step)
            removed = np.count_nonzero(layer.mask.numpy() == 0)
            assert removed == round(1000 * expected_sparsity(step, *schedule))
            later = [t for t in due if t > step]
            assert layer.steps_until_due(step) == (later[0] - step if later else None)


def test_the_smallest_weights_are_removed_and_stay_removed():
    layer = PrunedDense(6, 0.75, 0, 12, 3)
    layer.build((None, 8))
    random = np.random.default_rng(1)
    removed = np.zeros(48, bool)
    for step in [*range(14), 6]:  # a step twice, or an earlier one, changes nothing
        layer.kernel.assign(random.normal(size=(8, 6)))  # as if training had changed all of them
        sizes = np.abs(layer.kernel.numpy()).ravel()
        count = round(expected_sparsity(step, 0.75, 0, 12, 3) * 48)
        candidates = [i for i in np.argsort(sizes) if not removed[i]]
        removed[candidates[: max(0, count - removed.sum())]] = True
        layer.prune(step)
        np.testing.assert_array_equal(layer.mask.numpy().ravel() == 0, removed)
    assert removed.sum() == 36
    kernel = np.where(removed.reshape(8, 6), 0, layer.kernel.numpy())
    np.testing.assert_allclose(layer(X), X @ kernel, atol=1e-5)


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


def test_removed_weights_stay_0_in_training():
    optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.1)
    loop, layer, watch = pruned_loop(optimizer=optimizer, ema_momentum=0.9)
    loop.fit()
    shares = {step: round(expected_sparsity(step, 0.75, 2, 11, 3) * 32) / 32 for step in watch.seen}
    assert watch.seen == shares
    assert {2, 5, 8, 11, 16} <= set(shares)  # calls of the graph end where a mask is due
    assert np.mean(layer.mask.numpy() == 0) == 0.75


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
    with pytest.raises(ValueError, match="'plain' has no built PrunedDense"):
        Prune(model)
    unbuilt = keras.Sequential([PrunedDense(4, 0.5, 0, 10)], name="unbuilt")
    with pytest.raises(ValueError, match="'unbuilt' has no built PrunedDense"):
        Prune(unbuilt)


def network() -> keras.Model:
    """5 features -> 1 value."""
    features = keras.Input((5,), dtype=keras.config.floatx())
    hidden = PrunedDense(4, 0.5, 0, 10, 5, activation="tanh", name="tested")(features)
    return keras.Model(features, keras.layers.Dense(1, name="head")(hidden))


def network_and_rows():
    """The network with random weights and half of the mask 0, and 11 rows."""
    model, random = network(), np.random.default_rng(2)
    for variable in model.variables:
        value = random.normal(size=variable.shape)
        variable.assign(value > 0 if variable.name == "mask" else value)
    return model, full_batch.batch("mlp")[0]


def test_a_saved_model_is_the_same_bit_for_bit(tmp_path):
    """Also in a program that imports the layer alone."""
    model, rows = network_and_rows()
    path = str(tmp_path / "model.keras")
    model.save(path)
    loaded = keras.models.load_model(path)
    assert loaded.get_layer("tested").get_config() == model.get_layer("tested").get_config()
    assert [v.path for v in loaded.variables] == [v.path for v in model.variables]
    np.testing.assert_array_equal(loaded(rows), model(rows))
    code = (
        "import sys, keras\n"
        "from trainer_module import PrunedDense\n"
        "print(keras.models.load_model(sys.argv[1]).count_params())"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert done.stdout.split() == [str(model.count_params())], done.stderr


@pytest.mark.parametrize(
    ("strategy", "micro_batch_size", "rows", "optimizer"),
    [("none", 3, "ragged", "adamw"), ("mirrored2", 2, "fewer_than_replicas", "sgd")],
)
def test_windows_and_replicas_are_exact(
    strategies, monkeypatch, strategy, micro_batch_size, rows, optimizer
):
    monkeypatch.setitem(full_batch.MODELS, "mlp", network)
    cell = Cell(strategy, "mlp", optimizer, micro_batch_size, rows, "some_zero")
    exactness.check(cell, strategies)


def test_bad_arguments_are_reported():
    for arguments, fact in [
        ((4, 1.0, 0, 10), "sparsity=1.0"),
        ((4, "most", 0, 10), "sparsity='most'"),
        ((4, 0.5, 10, 10), "begin_step=10, end_step=10"),
        ((4, 0.5, 0, 1.5), "end_step=1.5"),
        ((4, 0.5, True, 10), "begin_step=True"),
        ((4, 0.5, 0, 10, 0), "every=0"),
    ]:
        with pytest.raises(ValueError, match=re.escape(fact)):
            PrunedDense(*arguments)


def default_model(total_steps=100, **settings):
    """The model of the plan for a `model` section, as in a new process."""
    config = TrainerConfig(model={"hidden_units": (8, 4), **settings})
    spec = {"numbers": tf.io.FixedLenFeature([6], tf.float32)}
    context = ModelContext(spec, None, None, "y", "binary", 1, {}, config)
    keras.utils.clear_session(free_memory=False)  # the names; a collection takes seconds
    return resolve(config, label_kind="binary").build(context, total_steps)[0]


def test_pruning_ends_at_the_half_of_the_run():
    for total_steps in (1, 2, 19, 20, 1000):
        begin, end, every = _pruning_schedule(total_steps)
        assert 0 <= begin < end <= max(1, total_steps // 2)
        assert (end - begin) / every <= 40
        model = default_model(total_steps, sparsity=0.75)
        layers = [layer for layer in model.layers if isinstance(layer, PrunedDense)]
        assert [(each.end_step, each.sparsity) for each in layers] == [(end, 0.75)] * 2
        for each in layers:
            each.prune(total_steps)
            assert np.mean(each.mask.numpy() == 0) == 0.75
    with pytest.raises(ValueError, match=r"total_steps=0: give ModelContext"):
        default_model(0, sparsity=0.75)


def test_a_longer_run_may_prune_by_a_longer_schedule():
    """As it may have another learning-rate schedule; another sparsity is another run."""

    def facts(**settings):
        model = default_model(**settings)
        callbacks = {"0 Prune": Prune(model).facts()}
        rest = StepOptions(micro_batch_size=1), LoopOptions(epochs=1)
        options = {name: value for each in rest for name, value in each.fingerprint().items()}
        return {"model": _model_fingerprint(model), "callbacks": callbacks, **options}

    before = facts(total_steps=100, sparsity=0.5)
    after = facts(total_steps=200, sparsity=0.5)
    found = check_fingerprint(before, after, path="folder", longer=True)
    assert any("end_step was 50 and is 100" in line for line in found)
    with pytest.raises(ValueError, match="end_step"):
        check_fingerprint(before, after, path="folder", longer=False)
    with pytest.raises(ValueError, match=r"sparsity was 0\.5 and is 0\.6"):
        check_fingerprint(before, facts(sparsity=0.6), path="folder", longer=True)


def test_bad_settings_are_reported():
    for settings, facts in [
        ({"sparsity": 1.0}, ["model.sparsity=1.0", "below 1"]),
        ({"sparsity": 0.5, "hidden_units": []}, ["sparsity=0.5", "hidden_units=[]", "[64, 32]"]),
    ]:
        with pytest.raises(ValueError, match=r"^training\.model") as error:
            TrainerConfig.parse({"model": settings}, section="training")
        assert [fact for fact in facts if fact not in str(error.value)] == []
