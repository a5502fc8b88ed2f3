"""A run that ended before its end continues bit for bit as the run that was never stopped.

In this process with an exception after a step, and by SIGTERM. tests/distributed has
kills of `run_fn` in each phase, also of two workers.
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys

import killed_loop
import numpy as np
import pytest
import tensorflow as tf
from killed_loop import ROWS, EndsAt, X, Y

from trainer_module.devices.worker_group import SINGLE_PROCESS
from trainer_module.loop.run import Preempted, WorkerSync
from trainer_module.step.train_step import SavedState

ROWS_IN_ORDER = tf.data.Dataset.from_tensor_slices((X, Y))


def by_epoch():
    return lambda epoch: ROWS_IN_ORDER.shuffle(ROWS, seed=epoch).batch(7)


def generated():
    spec = tf.TensorSpec((None, 4)), tf.TensorSpec((None, 1))
    batches = [(X[i : i + 7], Y[i : i + 7]) for i in range(0, ROWS, 7)]
    return tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=spec)


# What gives the batches, and how they are cut into epochs.
KINDS = {
    "shuffled and cached": {},
    "a function of the epoch": {"data": by_epoch},
    "arrays": {"data": lambda: (X, Y), "batch_size": 7, "steps_per_epoch": 4},
    "sizes by step": {"data": lambda: (X, Y), "batch_size": {0: 9, 4: 5, 10: 12, 16: 20}},
    "a generator": {"data": generated, "steps_per_epoch": 4},
    "filtered": {
        "data": lambda: killed_loop.shuffled().filter(lambda x, y: x[0, 0] < 0.7),
        "steps_per_epoch": 5,
    },
    "repeated": {
        "data": lambda: ROWS_IN_ORDER.shuffle(9, seed=1).repeat().batch(7),
        "steps_per_epoch": 6,
    },
    "prefetched": {
        "data": lambda: ROWS_IN_ORDER.shuffle(9, seed=1).repeat(2).batch(7).prefetch(1),
    },
}


@functools.cache
def traced(strategy):
    """A step, its evaluation, and its first values: its graph is traced once."""
    made = killed_loop.parts(strategy)
    return made, SavedState(made[0])


def run(strategy, folder, *callbacks, **options):
    """What the checkpoint does not restore is that of a new process."""
    made, initial = traced(strategy)
    initial.restore()
    return killed_loop.run(folder, *callbacks, made=made, **options)


def assert_same(found, expected):
    assert found[0] == expected[0]
    for value, other in zip(found[1], expected[1], strict=True):
        np.testing.assert_array_equal(value, other)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name"),
    [*((kind, "one_device") for kind in KINDS), ("a function of the epoch", "mirrored2")],
)
def test_a_run_that_is_killed_again_and_again(strategies, tmp_path, kind, name):
    """Between checkpoints and at one, in the middle and at the end of epochs."""
    options = {"epochs": 3, **KINDS[kind]}
    expected = run(strategies[name], tmp_path / "whole", **options)
    last = expected[0].steps
    for step in (2, 7, last):
        with pytest.raises(KeyboardInterrupt):
            run(strategies[name], tmp_path / "killed", EndsAt(step), **options)
    assert_same(run(strategies[name], tmp_path / "killed", **options), expected)


@pytest.mark.slow
def test_sigterm_saves_at_once(strategies, tmp_path):
    step = 14  # within an epoch
    strategy = strategies["one_device"]
    expected = run(strategy, tmp_path / "whole", epochs=3)
    folder = tmp_path / "stopped"
    with pytest.raises(Preempted, match=f"SIGTERM: step {step} is saved in .*again to continue"):
        run(strategy, folder, EndsAt(step, signal.SIGTERM), epochs=3)
    assert (folder / "saved" / f"ckpt-{step}.index").exists()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert_same(run(strategy, folder, epochs=3), expected)


def test_existing_sigterm_handler_is_kept():
    def own(number, frame):
        raise AssertionError

    before = signal.signal(signal.SIGTERM, own)
    try:
        with WorkerSync(SINGLE_PROCESS).noting_sigterm():
            assert signal.getsignal(signal.SIGTERM) is own
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)


def test_sigterm_after_the_last_boundary_ends_the_process():
    """And one that led to an exit with code 143 does not end it otherwise: the child of a fork."""
    program = """
import os, signal, sys
from trainer_module.devices.worker_group import SINGLE_PROCESS
from trainer_module.loop.run import Preempted, WorkerSync
child = os.fork()
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 143
sync = WorkerSync(SINGLE_PROCESS)
with sync.noting_sigterm():
    os.kill(os.getpid(), signal.SIGTERM)
    assert sync.was_asked_to_end
    if not child:
        raise Preempted("saved")
"""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True)
    assert done.returncode == -signal.SIGTERM
    assert b"Traceback" not in done.stderr
