"""What makes another run: derived from the fields of option records."""

from __future__ import annotations

import full_batch
import keras
import pytest

from trainer_module import TrainStep
from trainer_module.loop.run_fingerprint import check_fingerprint, program_fingerprint
from trainer_module.options.run_options import LoopOptions


class WithSmoothing(LoopOptions):
    smoothing: float = 0.5


@pytest.fixture(scope="module")
def fingerprint():
    """Returns a function that makes the fingerprint of a small program."""
    step = TrainStep(full_batch.mlp(), keras.optimizers.SGD(0.1), "mse", micro_batch_size=4)
    rows = full_batch.batch("mlp", 8)[:2]

    def make(options):
        return program_fingerprint(step, rows, options, None, [], first_pass=lambda: None)

    return make


def check(there, here):
    return check_fingerprint(there, here, path="run", longer=False)


def test_a_new_option_of_the_loop_makes_another_run(fingerprint):
    there = fingerprint(WithSmoothing(epochs=1))
    assert there["smoothing"] == 0.5
    assert check(there, fingerprint(WithSmoothing(epochs=9))) == []  # a run may grow
    with pytest.raises(ValueError, match=r"smoothing was 0\.5 and is 0\.25"):
        check(there, fingerprint(WithSmoothing(epochs=1, smoothing=0.25)))
