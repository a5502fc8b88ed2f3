"""SIGTERM while a loop with checkpoints trains: it saves at the next step boundary and ends.

Reference of what follows: the same loop without the signal, bit for bit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import killed_loop
import numpy as np
import pytest

from trainer_module.loop.callbacks import Callback
from trainer_module.loop.preemption import Preempted, Preemption
from trainer_module.step.train_step import SavedState


class TerminateAt(Callback):
    def __init__(self, step):
        self.step = step
        self.steps = []

    def on_loop(self, progress):
        self.steps.append(progress.step)
        if progress.step == self.step:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The run without the signal: its parts, their first values, and what it ends with."""
    made = killed_loop.parts()
    initial = SavedState(made[0])
    folder = tmp_path_factory.mktemp("straight")
    return made, initial, killed_loop.run(str(folder), epochs=3, made=made)[1]


@pytest.mark.slow
@pytest.mark.parametrize("step", [10, 14])  # at the end of an epoch (64 rows in sevens), in another
def test_sigterm_saves_at_once_and_the_run_resumes_exactly(tmp_path, straight, step):
    made, initial, expected = straight
    initial.restore()
    folder = tmp_path / "stopped"
    folder.mkdir()
    loop = killed_loop.build(str(folder), epochs=3, made=made)
    ends = TerminateAt(step)
    loop.callbacks.all.append(ends)
    loop.callbacks.called.append(ends)
    with pytest.raises(Preempted, match=f"SIGTERM: step {step} is saved in .*again to continue"):
        loop.fit()
    assert ends.steps[-1] == step
    assert (folder / "saved" / f"ckpt-{step}.index").exists()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    initial.restore()  # what the checkpoint does not restore stays that of a new process
    _, found = killed_loop.run(str(folder), epochs=3, made=made)
    for value, right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(value, right)


def test_existing_sigterm_handler_is_kept():
    def own(number, frame):
        raise AssertionError

    before = signal.signal(signal.SIGTERM, own)
    try:
        with Preemption() as preemption:
            assert signal.getsignal(signal.SIGTERM) is own
            assert preemption.asked is False
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)


def test_sigterm_after_the_last_boundary_ends_the_process():
    """And one that led to an exit with code 143 does not end it otherwise."""
    program = """
import os, signal, sys
from trainer_module.loop.preemption import Preempted, Preemption
with Preemption() as preemption:
    os.kill(os.getpid(), signal.SIGTERM)
    assert preemption.asked
    if sys.argv[1] == "saved":
        raise Preempted("saved")
"""
    for argument, code in (("saved", 143), ("late", -signal.SIGTERM)):
        done = subprocess.run([sys.executable, "-c", program, argument], capture_output=True)
        assert (done.returncode, done.stderr) == (code, b"")
