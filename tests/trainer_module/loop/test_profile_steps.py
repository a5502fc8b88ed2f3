"""The trace that `ProfileSteps` writes has the operations of exactly the steps that it names."""

from __future__ import annotations

import functools
from pathlib import Path

import keras
import numpy as np
import pytest

from trainer_module import (
    Callback,
    Checkpoints,
    ProfileSteps,
    TrainerConfig,
    TrainingLoop,
    TrainStep,
    run_fn,
)
from trainer_module.profiling.xplane import read_trace
from trainer_module.step.train_step import SavedState
from trainer_module.window.trace import phase_of

DATA = np.ones((96, 4), "float32"), np.ones((96, 1), "float32")


class Calls(Callback):
    """Records the steps after each call of the graph."""

    def __init__(self):
        self.ends = []

    def on_loop(self, progress):
        self.ends.append(progress.step)


@functools.cache
def traced():
    """A step and its first values: its graph is traced once."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    step = TrainStep(model, keras.optimizers.Adam(0.1), "mse", micro_batch_size=4)
    return step, SavedState(step)


def fit(*callbacks, folder=None, **options):
    """12 steps in calls of 5; returns the weights."""
    step, initial = traced()
    initial.restore()
    checkpoints = None if folder is None else Checkpoints(folder, step)
    options = {"steps": 12, "steps_per_loop": 5, **options}
    loop = TrainingLoop(step, DATA, batch_size=8, callbacks=[*callbacks], checkpoints=checkpoints,
                        progress=False, **options)  # fmt: skip
    loop.fit()
    return step.model.get_weights()


def steps_in(folder) -> int:
    """The number of steps in a trace: each reads one batch."""
    names = [event.name for event in read_trace(str(folder))]
    assert {"forward", "backward", "update"} <= {phase_of(name) for name in names}
    return names.count("IteratorGetNextAsOptionalOp::DoCompute")


def test_the_trace_has_the_named_steps_and_no_number_changes(tmp_path):
    calls, plain = Calls(), fit()
    traced = fit(ProfileSteps(str(tmp_path), 7, 9), calls)
    assert calls.ends == [5, 6, 9, 12]
    assert steps_in(tmp_path) == 3
    for first, second in zip(plain, traced, strict=True):
        np.testing.assert_array_equal(first, second)


def test_a_run_that_continues_within_the_steps_traces_the_rest(tmp_path):
    fit(folder=str(tmp_path / "run"), steps=2)
    fit(ProfileSteps(str(tmp_path / "logs"), 1, 4), folder=str(tmp_path / "run"))
    assert steps_in(tmp_path / "logs") == 2


def test_training_may_end_before_or_within_the_steps(tmp_path, caplog):
    fit(ProfileSteps(str(tmp_path / "within"), np.int64(11), np.int32(20)))
    assert steps_in(tmp_path / "within") == 2
    fit(ProfileSteps(str(tmp_path / "before"), 13, 20))
    assert "13 to 20: training ended after step 12" in caplog.text
    assert not (tmp_path / "before").exists()


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ([5], ["[5]", "[100, 110]"]),
        ("100", ["'100'", "[100, 110]"]),
        ([True, 2], ["[100, 110]"]),
        ([0, 5], ["[0, 5]", "from 1", "[5, 15]"]),
        ([9, 3], ["[9, 3]", "in order", "[3, 13]"]),
        ([1, 1001], ["1,000", "[1, 11]"]),
    ],
)
def test_wrong_steps_are_named(given, facts):
    with pytest.raises(ValueError, match=r"trainer\.profile_steps=") as error:
        TrainerConfig.parse({"profile_steps": given})
    assert [fact for fact in facts if fact not in str(error.value)] == []
    if isinstance(given, list) and len(given) == 2:
        with pytest.raises(ValueError, match="first="):
            ProfileSteps("logs", *given)


@pytest.mark.slow
def test_the_setting_writes_a_trace_into_the_run_folder(fn_args):
    args = fn_args(label="generous", steps=5, global_batch_size=50, profile_steps=[2, 3],
                   optimizer={"name": "adam", "learning_rate": 0.01})  # fmt: skip
    run_fn(args)
    assert steps_in(Path(args.model_run_dir)) == 2
