"""Epochs, the last window, and when checkpoints are saved."""

from __future__ import annotations

import types

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf
from killed_loop import EndsAt

from trainer_module.loop import checkpoints
from trainer_module.loop.callback import Callback
from trainer_module.loop.evaluation import Evaluation
from trainer_module.loop.training_loop import TrainingLoop
from trainer_module.step.train_step import SavedState, TrainStep

FEATURES, LABELS, WEIGHTS = full_batch.batch("mlp", 23)


def batches(epoch):
    data = tf.data.Dataset.from_tensor_slices((FEATURES, LABELS, WEIGHTS))
    return data.shuffle(23, seed=epoch, reshuffle_each_iteration=False).batch(5)


@pytest.fixture(scope="module")
def traced(strategies):
    """A step, its evaluation and its first values: its graph is traced once."""
    keras.utils.set_random_seed(5)
    strategy = strategies["one_device"]
    with strategy.scope():
        model, optimizer = full_batch.mlp(), keras.optimizers.SGD(0.01)
    step = TrainStep(model, optimizer, "mse", micro_batch_size=2, strategy=strategy)
    data = tf.data.Dataset.from_tensor_slices((FEATURES, LABELS)).batch(7)
    return step, Evaluation(model, "mse", data, strategy=strategy), SavedState(step)


@pytest.fixture
def build(traced):
    """Returns a function that makes a loop of 15 steps with that step, as before its first."""
    step, evaluate, initial = traced
    initial.restore()

    def made(*callbacks, epochs=3):
        return TrainingLoop(
            step,
            batches,
            epochs=epochs,
            steps_per_loop=1,
            evaluate=evaluate,
            callbacks=callbacks,
            progress=False,
        )

    return made


def test_share_of_time_limits_the_checkpoints(build, tmp_path, monkeypatch):
    """Epochs of 1 s, 0.75 s to save, a quarter of the time: after a save the next is due in 3 s."""
    now = [0.0]
    monkeypatch.setattr(checkpoints, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    epochs = []

    class Second(Callback):
        def on_epoch(self, end):
            now[0] += 1.0
            return False

    class Slow(checkpoints.Checkpoints):
        def save(self, position, step):
            epochs.append(position["epoch"])
            super().save(position, step)

    loop = build(Second(), epochs=8)
    slow = Slow(str(tmp_path), loop.train_step, share_of_time=0.25)
    record = slow._folder._record

    def slow_record(kept):
        now[0] += 0.75
        record(kept)

    monkeypatch.setattr(slow._folder, "_record", slow_record)
    loop._run.checkpoints = slow
    loop.fit()
    assert epochs == [1, 4, 7, 8]  # the last is always saved


class Minute(Callback):
    """A minute goes by at each call of the graph."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        clock = types.SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(checkpoints, "time", clock)

    def on_loop(self, progress):
        self.now += 60.0


@pytest.mark.parametrize(
    ("minutes", "saved"),
    [
        # After a first save, which takes no time on this clock, each end of an epoch is due, too.
        (2, [2, 4, 5, 7, 9, 10, 12, 14, 15]),
        (None, [15]),
    ],
)
def test_checkpoint_is_saved_after_the_set_minutes(build, tmp_path, monkeypatch, minutes, saved):
    loop = build(Minute(monkeypatch))
    loop._run.checkpoints = checkpoints.Checkpoints(
        str(tmp_path), loop.train_step, keep=99, every_minutes=minutes, share_of_time=1e-9
    )
    assert loop.fit().steps == 15
    numbers = sorted(int(path.stem.removeprefix("ckpt-")) for path in tmp_path.glob("*.index"))
    assert numbers == saved


def test_overdue_checkpoint_at_the_end_of_an_epoch_includes_its_evaluation(
    build, tmp_path, monkeypatch
):
    loop = build(Minute(monkeypatch), EndsAt(6))
    options = {"every_minutes": 5, "share_of_time": 1e-9}
    loop._run.checkpoints = checkpoints.Checkpoints(str(tmp_path), loop.train_step, **options)
    with pytest.raises(KeyboardInterrupt):
        loop.fit()
    assert [path.stem for path in tmp_path.glob("*.index")] == ["ckpt-5"]
    again = build(Minute(monkeypatch))
    again._run.checkpoints = checkpoints.Checkpoints(str(tmp_path), again.train_step, **options)
    assert len(again.fit().history["val_loss"]) == 3


def test_training_data_without_a_batch_is_an_error(traced):
    data = tf.data.Dataset.from_tensor_slices((FEATURES[:0], LABELS[:0], WEIGHTS[:0])).batch(5)
    with pytest.raises(ValueError, match="the training data has no batch"):
        TrainingLoop(traced[0], data, epochs=1).fit()


def test_the_loss_of_an_epoch_is_that_of_its_rows_whatever_the_steps_per_loop(float64):
    """Reference: NumPy, at learning rate 0; 1e-12, and the same bits for each cut."""
    random = np.random.default_rng(0)
    features, labels = random.normal(size=(23, 5)), random.normal(size=(23, 1))
    weights = random.uniform(0.0, 9.0, 23) ** 3
    data = tf.data.Dataset.from_tensor_slices((features, labels, weights)).batch(5)
    model = full_batch.mlp()
    step = TrainStep(model, keras.optimizers.SGD(0.0), "mse", micro_batch_size=2)
    one, three, five = (
        TrainingLoop(step, data, epochs=2, steps_per_loop=n, progress=False).fit().history["loss"]
        for n in (1, 3, 5)
    )
    squares = ((labels - np.asarray(model(features))) ** 2)[:, 0]
    expected = np.average(squares, weights=weights)
    assert one == pytest.approx([expected, expected], rel=1e-12)
    assert one == three == five


def test_contradictory_options_are_rejected_in_the_constructor(traced):
    for options, message in [
        ({}, "epochs and steps are both None: give one"),
        ({"epochs": 1, "steps": 1}, "epochs=1 and steps=1"),
        ({"epochs": 0}, "epochs=0: use a whole number of at least 1"),
        ({"steps_per_loop": "x"}, "='x': use a whole number or 'auto'"),
        ({"epochs": 1, "steps_per_loop": 0}, "steps_per_loop=0"),
        ({"epochs": 1, "steps_per_loop": "many"}, "steps_per_loop='many'"),
    ]:
        with pytest.raises(ValueError, match=message):
            TrainingLoop(traced[0], batches, **options)


@pytest.mark.slow(7)
def test_an_output_may_have_no_weights_in_any_data(float64):
    """Reference: `step(batch)` with weights of 1 in place of None, 1e-12."""

    def pair(a, b):
        return {"a": a, "b": b}

    x = keras.Input((5,))
    outputs = [keras.layers.Dense(1)(x), keras.layers.Dense(2)(x)]
    model = keras.Model(x, pair(*outputs))
    loss = pair("mse", "mse")
    start = model.get_weights()
    random = np.random.default_rng(0)

    def new_step():
        """A step that has not seen a batch, so that it checks the rows of its first one."""
        return TrainStep(model, keras.optimizers.SGD(0.1), loss, micro_batch_size=3)

    features, weights = random.normal(size=(8, 5)), random.uniform(size=8)
    labels = pair(random.normal(size=(8, 1)), random.normal(size=(8, 2)))
    expected_loss = float(new_step()((features, labels, pair(weights, np.ones(8)))).loss)
    expected = model.get_weights()
    batch = (features, labels, pair(weights, None))
    dataset = tf.data.Dataset.from_tensor_slices(batch).batch(8)
    arrays = {"batch_size": 8, "shuffle": False}
    for data, options in ((batch, arrays), (dataset, {})):
        model.set_weights(start)
        evaluate = Evaluation(model, loss, dataset)
        loop = TrainingLoop(
            new_step(), data, epochs=1, evaluate=evaluate, progress=False, **options
        )
        history = loop.fit().history
        assert history["loss"] == [pytest.approx(expected_loss, rel=1e-12)]
        assert np.isfinite(history["val_loss"]).all()
        assert full_batch.error(model.get_weights(), expected) < 1e-12
