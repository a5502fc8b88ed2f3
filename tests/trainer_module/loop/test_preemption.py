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


class TerminateAt(Callback):
    def __init__(self, step):
        self.step = step
        self.steps = []

    def on_loop(self, progress):
        self.steps.append(progress.step)
        if progress.step == self.step:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.parametrize("step", [5, 10, 20])  # in an epoch, at its end (64 rows in sevens), later
def test_sigterm_saves_at_once_and_the_run_resumes_exactly(tmp_path, step):
    _, expected = killed_loop.run(str(tmp_path / "straight"), epochs=3)
    folder = tmp_path / "stopped"
    folder.mkdir()
    loop = killed_loop.build(str(folder), epochs=3)
    ends = TerminateAt(step)
    loop.callbacks.all.append(ends)
    loop.callbacks.called.append(ends)
    with pytest.raises(Preempted, match=f"SIGTERM: step {step} is saved in .*again to continue"):
        loop.fit()
    assert ends.steps[-1] == step
    assert (folder / "saved" / f"ckpt-{step}.index").exists()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    _, found = killed_loop.run(str(folder), epochs=3)
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
