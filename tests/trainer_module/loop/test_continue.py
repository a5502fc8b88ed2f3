"""Continuing with a longer run, and not with another one."""

from __future__ import annotations

import functools

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module.loop.callback import Callback
from trainer_module.loop.checkpoints import Checkpoints
from trainer_module.loop.training_loop import TrainingLoop
from trainer_module.step.train_step import SavedState, TrainStep

FEATURES, LABELS, WEIGHTS = full_batch.batch("mlp", 12)


@functools.cache
def traced():
    """The step of `loop` and its first values: its graph is traced once."""
    step = step_of()
    return step, SavedState(step)


def step_of(*, activation="relu", rate=0.1, units=4, loss="mse", names=()):
    keras.utils.set_random_seed(5)
    model = keras.Sequential([keras.Input((5,))])
    model.add(keras.layers.Dense(units, activation, name="inner" if "named" in names else None))
    model.add(keras.layers.Dense(1))
    return TrainStep(model, keras.optimizers.Adam(rate), loss, micro_batch_size=4)


def loop(folder, *, data=None, change=None, **options):
    """A loop before its first step; it takes the step of the loops before it, but for a change."""
    if change:
        step = step_of(**change)
    else:
        step, initial = traced()
        initial.restore()
    rows = tf.data.Dataset.from_tensor_slices((FEATURES, LABELS)) if data is None else data
    return TrainingLoop(
        step,
        rows.batch(5),
        **({"epochs": 2} | options if "steps" not in options else options),
        checkpoints=Checkpoints(str(folder), step),
        progress=False,
    )


def weights(done):
    step = done.train_step
    return [v.numpy() for v in (*step.model.variables, *step.optimizer.variables)]


def same(done, expected):
    return all(np.array_equal(a, b) for a, b in zip(weights(done), expected, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("short", "long"), [({"epochs": 2}, {"epochs": 4}), ({"steps": 4}, {"steps": 8})]
)
def test_extended_run_equals_the_longer_run(tmp_path, short, long):
    """Bit for bit; 3 steps make an epoch: four of them end within the second."""
    whole = loop(tmp_path / "whole", **long)
    wanted, expected = whole.fit(), weights(whole)
    loop(tmp_path / "grown", **short).fit()
    grown = loop(tmp_path / "grown", **long)
    result = grown.fit()
    assert (result.stopped, result.steps, result.epochs) == wanted[:3]
    assert same(grown, expected)
    again = loop(tmp_path / "grown", **long)
    assert again.fit() == result  # nothing left to do
    assert same(again, expected)
    with pytest.raises(ValueError, match=r"has ended: make another one with the same step"):
        again.fit()
    with pytest.raises(ValueError, match=r"but the checkpoint in .*grown is of step \d+, epoch"):
        loop(tmp_path / "grown", **short).fit()


class Counts(Callback):
    def state(self):
        return {"count": 1}


def test_checkpoint_of_another_run_is_rejected_with_the_differences(finished):
    other_rows = tf.data.Dataset.from_tensor_slices((FEATURES + 1, LABELS))
    for change, message in [
        ({"activation": "selu"}, r"model\.dense\.activation was relu and is selu"),
        ({"rate": 0.2}, r"optimizer\.learning_rate was 0\.1 and is 0\.2"),
        ({"loss": "mae"}, r"loss was .* and is "),
        ({"units": 5}, r"model\.dense\.units was 4 and is 5"),
        ({"names": ("named",)}, r"model\.inner\..* was not there and is"),
        ({"data": other_rows}, r"data\.0 TensorSlice\.tensors was .* and is "),
    ]:
        match = rf"was not the same as this one: .*{message}.*delete "
        with pytest.raises(ValueError, match=match):
            loop(finished, epochs=4, data=change.pop("data", None), change=change).fit()
    with pytest.raises(ValueError, match=r"the callbacks \[\], this one has \['Counts'\]"):
        loop(finished, callbacks=[Counts()]).fit()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    loop(folder).fit()
    return folder


def test_grown_schedule_is_reported(tmp_path, warnings):
    def scheduled(epochs):
        rate = keras.optimizers.schedules.CosineDecay(0.1, decay_steps=3 * epochs)
        return loop(tmp_path, change={"rate": rate}, epochs=epochs)

    scheduled(2).fit()
    assert scheduled(3).fit().steps == 9
    (line,) = (line for line in warnings if "schedule" in line)
    assert "learning_rate.config.decay_steps was 6 and is 9" in line
    assert "From step 6 on it is the longer one" in line


def test_each_epoch_has_its_own_number_of_batches():
    """12 rows, then 7, then 12: none is dropped."""
    rows = tf.data.Dataset.from_tensor_slices((FEATURES, LABELS))
    step = TrainStep(full_batch.mlp(), keras.optimizers.SGD(0.01), "mse", micro_batch_size=4)
    taken = TrainingLoop(step, lambda epoch: rows.take(7 + 5 * (epoch % 2)).batch(2), epochs=3)
    assert taken.fit().steps == 4 + 6 + 4


def test_unseeded_shuffle_is_rejected_with_checkpoints(tmp_path):
    step = TrainStep(full_batch.mlp(), keras.optimizers.SGD(0.01), "mse", micro_batch_size=4)
    tf.random.set_seed(None)
    rows = tf.data.Dataset.from_tensor_slices((FEATURES, LABELS))
    saved = Checkpoints(str(tmp_path), step)
    with pytest.raises(ValueError, match=r"without a seed.*write dataset\.shuffle\(n, seed=0\)"):
        TrainingLoop(step, rows.shuffle(9).batch(4), epochs=1, checkpoints=saved)
    TrainingLoop(step, rows.shuffle(9).batch(4), epochs=1)  # nothing to continue from
