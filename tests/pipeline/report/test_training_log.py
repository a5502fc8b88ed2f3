"""Curves of event files that the Trainer's callback wrote."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from pipeline.report.training_log import MOST_POINTS, Curve, curves_of, thin
from trainer_module.loop.callback import EpochEnd, FitResult, LoopProgress
from trainer_module.loop.callbacks import TensorBoardScalars


def write(folder: Path, losses: dict[int, float], evaluated: dict[int, float]) -> None:
    """Write what one start of a training writes: losses by step, and an AUC by step."""
    scalars = TensorBoardScalars(str(folder))
    for step, loss in losses.items():
        scalars.on_loop(LoopProgress(step, 1, None, 1, 1, loss, 0.5, 0.25, 64, 0.5))
    for step, auc in evaluated.items():
        scalars.on_epoch(EpochEnd(step, 1, 0.0, {"auc": auc}, {}))
    scalars.on_end(FitResult("epochs", max(losses), 1, {}, {}, {}))


def curve(folder: Path, split: str, name: str) -> Curve:
    (found,) = (each for each in curves_of(folder) if (each.split, each.name) == (split, name))
    return found


def test_each_scalar_of_both_splits_is_a_curve(tmp_path: Path) -> None:
    write(tmp_path, {1: 0.75, 2: math.nan, 4: 0.5}, {4: 0.875})
    names = {(each.split, each.name) for each in curves_of(tmp_path)}
    train = ("loss", "gradient_norm", "learning_rate", "examples_per_second")
    assert names == {("eval", "auc"), *(("train", name) for name in train)}
    loss = curve(tmp_path, "train", "loss")
    assert loss.steps == [1, 2, 4]
    np.testing.assert_array_equal(loss.values, [0.75, math.nan, 0.5])
    assert curve(tmp_path, "eval", "auc") == Curve("eval", "auc", [4], [0.875])
    assert curve(tmp_path, "train", "examples_per_second").values == [128.0] * 3
    assert loss.resumed == ()


def test_steps_that_a_restart_repeated_have_the_values_of_the_restart(tmp_path: Path) -> None:
    write(tmp_path, {1: 1.0, 2: 2.0, 3: 3.0}, {})
    write(tmp_path, {2: 20.0, 3: 30.0, 4: 40.0}, {})
    loss = curve(tmp_path, "train", "loss")
    assert (loss.steps, loss.values) == ([1, 2, 3, 4], [1.0, 20.0, 30.0, 40.0])
    assert loss.resumed == (2,)


def test_a_file_that_ends_in_the_middle_of_a_record_is_read_up_to_there(tmp_path: Path) -> None:
    write(tmp_path, {1: 1.0, 2: 2.0}, {})
    (file,) = (tmp_path / "train").iterdir()
    file.write_bytes(file.read_bytes()[:-7])
    assert curve(tmp_path, "train", "loss").steps == [1]


def test_a_folder_without_event_files_has_no_curves(tmp_path: Path) -> None:
    assert curves_of(tmp_path) == []


def test_a_long_curve_keeps_its_ends_and_extremes() -> None:
    values = np.random.default_rng(0).normal(size=10_007)
    values[5_000], values[5_001:5_900] = 9.0, math.nan
    steps, shown = thin(range(10_007), values.tolist())
    assert len(steps) <= MOST_POINTS
    assert (steps[0], steps[-1]) == (0, 10_006)
    assert np.nanmax(shown) == 9.0
    assert np.nanmin(shown) == np.nanmin(values)
    np.testing.assert_array_equal(shown, values[steps])
    assert np.isnan(shown).any()  # the gap is seen
