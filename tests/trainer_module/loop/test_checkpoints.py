"""Checkpoints on disk: what is kept, and what a kill, damage or another model leaves."""

from __future__ import annotations

import functools
import itertools
import shutil

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module.loop import checkpoints as module
from trainer_module.loop.checkpoints import Checkpoints
from trainer_module.step.train_step import SavedState, TrainStep


def train_step(seed=1, units=1, optimizer=keras.optimizers.Adam):
    keras.utils.set_random_seed(seed)
    return TrainStep(full_batch.mlp(units), optimizer(0.01), "mse", micro_batch_size=4)


@functools.cache
def traced():
    """A step and its first values: its graph is traced once."""
    step = train_step()
    return step, SavedState(step)


def weights(step):
    return [v.numpy() for v in (*step.model.variables, *step.optimizer.variables, *step.state())]


def saved(folder, steps, **options):
    """Saves after each of these steps; returns the step, and its weights after each."""
    step, initial = traced()
    initial.restore()
    checkpoints, found = Checkpoints(str(folder), step, **options), []
    for number in steps:
        step(full_batch.batch("mlp", 8))
        checkpoints.save({"epoch": number}, number)
        found.append(weights(step))
    return step, found


def restored(folder):
    """Returns the position and the weights that a new process would continue with."""
    step = train_step(seed=2)
    position = Checkpoints(str(folder), step).restore()
    return position, weights(step)


def same(found, expected):
    return all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


def names(folder):
    return sorted({path.name.partition(".")[0] for path in folder.glob("ckpt-*")})


def test_latest_checkpoints_are_kept_also_where_the_folder_moves(tmp_path):
    _, found = saved(tmp_path / "before", [5, 9, 10, 11], keep=3)
    tmp_path = shutil.move(tmp_path / "before", tmp_path / "after")
    assert names(tmp_path) == sorted(f"ckpt-{n}" for n in [9, 10, 11])
    position, state = restored(tmp_path)
    assert position["epoch"] == 11
    assert same(state, found[-1])
    assert not same(found[-1], found[-2])
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith("ckpt-11")


@pytest.mark.parametrize(  # another step, and the same one once more
    ("at", "keep", "while_writing"), [(2, 1, False), (2, 2, True)]
)
def test_killed_save_keeps_the_previous_checkpoint(tmp_path, monkeypatch, at, keep, while_writing):
    step, found = saved(tmp_path, [1, 2], keep=keep)
    checkpoints = Checkpoints(str(tmp_path), step, keep=keep)

    def killed(*args, **options):
        raise KeyboardInterrupt

    step(full_batch.batch("mlp", 8))
    with monkeypatch.context() as patch:
        if while_writing:
            patch.setattr(tf.raw_ops, "SaveV2", killed)
        else:
            patch.setattr(checkpoints._folder, "_record", killed)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.save({"epoch": -1}, at)
    position, state = restored(tmp_path)
    assert position["epoch"] == 2
    assert same(state, found[-1])
    # What it left goes with the next one saved.
    Checkpoints(str(tmp_path), step).save({"epoch": 4}, 4)
    assert names(tmp_path) == ["ckpt-2", "ckpt-4"]


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_checkpoints_that_are_not_recorded_are_found(tmp_path, content):
    """As after a kill right before, or where the file of names is damaged or left behind."""
    step, found = saved(tmp_path, [9, 10, 10], keep=3)
    assert len(names(tmp_path)) == 3
    if content is None:
        (tmp_path / "checkpoint").unlink()
    else:
        (tmp_path / "checkpoint").write_bytes(content)
    shutil.copy(tmp_path / "ckpt-9.data-00000-of-00001", tmp_path / "ckpt-11.data-00000-of-00001")
    position, state = restored(tmp_path)
    assert position["epoch"] == 10
    assert same(state, found[-1])
    Checkpoints(str(tmp_path), step).save({"epoch": 12}, 12)
    assert names(tmp_path) == ["ckpt-10-1", "ckpt-12"]
    assert restored(tmp_path)[0]["epoch"] == 12


def test_a_step_saved_twice_is_restored_as_the_second(tmp_path):
    """As where an epoch ends at a step after which a checkpoint is due."""
    step, _ = saved(tmp_path, [1, 2])
    checkpoints = Checkpoints(str(tmp_path), step)
    for epoch in (20, 21, 22):
        checkpoints.save({"epoch": epoch}, 2)
        assert restored(tmp_path)[0]["epoch"] == epoch
    assert len(names(tmp_path)) == 2


def test_a_checkpoint_of_another_version_is_refused_in_a_sentence(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(module, "_FORMAT", 2)
        saved(tmp_path, [1])
    with pytest.raises(ValueError, match=r"by another version of trainer_module: .* train again"):
        restored(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"units": 3},
            r"model/2 was float32\[6, 1\] and is float32\[6, 3\]",
        ),
        ({"optimizer": keras.optimizers.SGD}, r".*optimizer/\d was .* and is none"),
    ],
)
def test_checkpoint_of_another_model_is_rejected(tmp_path, options, message):
    saved(tmp_path, [1])
    other = train_step(**options)
    before = weights(other)
    with pytest.raises(
        ValueError, match=rf"another model, optimizer or callbacks \({message}.*or delete /"
    ):
        Checkpoints(str(tmp_path), other).restore()
    assert same(weights(other), before)


def test_damaged_checkpoint_is_reported(tmp_path):
    saved(tmp_path, [1])
    (data,) = tmp_path.glob("ckpt-1.data-*")
    data.write_bytes(data.read_bytes()[:-40])
    step = train_step()
    before = weights(step)
    with pytest.raises(
        ValueError, match=r"ckpt-1 cannot be read \(.*another directory for checkpoints"
    ):
        Checkpoints(str(tmp_path), step).restore()
    assert same(weights(step), before)


@pytest.mark.parametrize("damage", ["gone", "index"])
def test_a_damaged_latest_checkpoint_falls_back_to_the_one_before_it(tmp_path, damage):
    _, found = saved(tmp_path, [1, 2])
    (data,) = tmp_path.glob("ckpt-2.index" if damage == "index" else "ckpt-2.data-*")
    if damage == "gone":
        data.unlink()
    else:
        data.write_bytes(data.read_bytes()[:-40])
    position, state = restored(tmp_path)
    assert position["epoch"] == 1
    assert same(state, found[0])


def test_invalid_counts_and_times_are_rejected(tmp_path):
    times = itertools.product(
        ("every_minutes", "share_of_time"), (0, -1, float("nan"), float("inf"))
    )
    for options, message in [
        *(({name: value}, f"{name}={value}: use a number above 0") for name, value in times),
        ({"every_steps": 0}, "every_steps=0: use at least 1"),
        ({"keep": 0}, "keep=0: use at least 1"),
        ({"keep": -1}, "keep=-1: use at least 1"),
        ({"keep": 1.5}, r"keep=1.5: use a whole number"),
    ]:
        with pytest.raises(ValueError, match=message):
            Checkpoints(str(tmp_path), traced()[0], **options)
