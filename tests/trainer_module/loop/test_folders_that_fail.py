"""Checkpoints in a folder that is full, and in one that is far away.

Reference of each: the run whose folder never failed, bit for bit.
"""

from __future__ import annotations

import functools
import itertools
import subprocess
import time

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module.loop.checkpoint_folder import run_folder
from trainer_module.loop.checkpoints import Checkpoints
from trainer_module.loop.training_loop import TrainingLoop
from trainer_module.step.train_step import SavedState, TrainStep

DISK_KB = 512


@pytest.fixture
def small_disk(tmp_path):
    """A disk of half a MiB, which takes root to mount."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_KB}k", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.fixture
def one_in(monkeypatch):
    """A function that makes one in so many operations on files fail, as far folders do."""
    every, calls = [0], itertools.count(1)

    def failing(function, error):
        @functools.wraps(function)
        def run(*args, **options):
            if every[0] and next(calls) % every[0] == 0:
                raise error(None, None, "UNAVAILABLE: the folder is not there")
            return function(*args, **options)

        return run

    # TensorFlow's reader of checkpoints raises another type, with the file system's text.
    read = (tf.raw_ops, "RestoreV2", tf.errors.NotFoundError)
    write = (tf.raw_ops, "SaveV2", tf.errors.UnavailableError)
    names = ("makedirs", "glob", "remove", "exists")
    others = ((tf.io.gfile, name, tf.errors.UnavailableError) for name in names)
    for owner, name, error in (read, write, *others):
        monkeypatch.setattr(owner, name, failing(getattr(owner, name), error))
    return functools.partial(every.__setitem__, 0)


@functools.cache
def traced(units):
    """A step and its first values: its graph is traced once."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(units, "relu")])
    model.add(keras.layers.Dense(1))
    step = TrainStep(model, keras.optimizers.Adam(0.01), "mse", micro_batch_size=4)
    return step, SavedState(step)


def loop(folder, *, units=4, epochs=3, **options):
    """A loop whose step has not been taken: that of an earlier loop starts again, too."""
    step, initial = traced(units)
    initial.restore()
    checkpoints = Checkpoints(folder, step, every_steps=1, **options)
    rows = full_batch.batch("mlp", 12)
    return TrainingLoop(step, rows, batch_size=5, epochs=epochs, checkpoints=checkpoints)


def weights(done):
    step = done.train_step
    return [v.numpy() for v in (*step.model.variables, *step.optimizer.variables)]


def same(found, expected):
    return all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


def test_full_disk_ends_training_with_a_message_and_loses_nothing(small_disk, tmp_path):
    whole = loop(str(tmp_path / "whole"), units=2000)
    whole.fit()
    expected = weights(whole)
    one_kb = sum(file.stat().st_size for file in (tmp_path / "whole").glob("ckpt-9.*")) >> 10
    assert 2 * one_kb < DISK_KB < 4 * one_kb
    folder, filler = small_disk / "saved", small_disk / "filler"
    filler.write_bytes(bytes((DISK_KB - one_kb - one_kb // 2) << 10))
    what_now = f"continues from {folder}/ckpt-1, which is whole"
    with pytest.raises(OSError, match=f"step 2 cannot.*{folder} .*No space.*{what_now}"):
        loop(str(folder), units=2000).fit()
    assert not list(folder.glob("*.tempstate*"))
    filler.unlink()
    again = loop(str(folder), units=2000, keep=1)
    again.fit()
    assert same(weights(again), expected)


@pytest.mark.slow
def test_unreliable_remote_folder_gives_the_same_weights(one_in, tmp_path, caplog):
    whole = loop(str(tmp_path / "near"))
    whole.fit()
    expected = weights(whole)
    one_in(7)
    folder = run_folder(str(tmp_path / "far"), {"epochs": 3})
    loop(folder, epochs=2).fit()
    again = loop(folder)  # as another process would: from the checkpoint
    again.fit()
    assert same(weights(again), expected)
    retries = [r.getMessage() for r in caplog.records if "trying again" in r.getMessage()]
    assert len(retries) > 5
    assert any("writing the checkpoint of step" in line for line in retries)
    kept = sorted(path.name for path in (tmp_path / "far").rglob("ckpt-*"))
    assert len(kept) == 4, kept  # two of two files each: nothing is left of what failed


def test_lost_remote_folder_ends_training_with_a_message(one_in, tmp_path):
    done = loop(str(tmp_path / "far"), patience_seconds=0.3)
    one_in(1)
    started = time.monotonic()
    with pytest.raises(OSError, match=r"step 1 cannot be written to .*far.*not there"):
        done.fit()
    assert time.monotonic() - started < 60


def test_temporarily_unreadable_checkpoint_is_not_treated_as_damaged(one_in, tmp_path):
    loop(str(tmp_path / "far"), epochs=2).fit()
    again = loop(str(tmp_path / "far"), patience_seconds=0.3)
    one_in(1)
    with pytest.raises(OSError, match=r"ckpt-6-1 cannot be read now .*not there"):
        again.fit()
