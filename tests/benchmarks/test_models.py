"""The comparison of the default model's options: arrays of tables, ranks, a quick run."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from benchmarks import _report, models


def test_numbers_are_scaled_by_the_training_rows_alone():
    frame = pd.DataFrame(
        {
            "size": [1.0, 3.0, np.nan, 100.0],
            "same": [2, 2, 2, 9],
            "town": pd.Series(["b", "a", None, "c"], dtype=object),
        }
    )
    found = models.arrays_of(frame, np.array([0, 1, 2]))
    expected = [[-1, 0, 0], [1, 0, 0], [0, 1, 0], [98, 0, 0]]  # size, is it missing, same
    np.testing.assert_array_equal(found["numbers"], expected)
    assert found["id_0"][:, 0].tolist() == [1, 0, 3, 2]


def test_equal_scores_share_their_rank():
    scores = {"mlp": [0.5], "residual": [0.7], "tabm": [0.7], models.BOOSTING: [0.9]}
    errors = {name: [1 - values[0]] for name, values in scores.items()}
    sizes = {"titanic": 1_052, "cars": 318}
    note = models.ranks_note({"titanic": scores, "cars": errors}, sizes)
    ranks = "HistGradientBoosting 1.00, residual 2.50, tabm 2.50, mlp 4.00."
    assert note.startswith(f"Mean ranks over 2 tables (1 is the best): {ranks}"), note
    assert note.count(ranks) == 2  # over all and over the small tables: there are no large ones


@pytest.mark.slow
def test_quick_measures_each_option_and_keeps_nothing():
    kept = {path: path.read_text() for path in _report.PROGRAMS.glob("results/*/*.json")}
    # In a child process: it sets the threads of TensorFlow, which has to be done first.
    done = subprocess.run(
        [sys.executable, _report.PROGRAMS / "models.py", "--quick"],
        env={**os.environ, "PYTHONPATH": str(_report.PROGRAMS.parent)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    printed = done.stdout
    assert [option for option in models.OPTIONS if f"iris: {option}" not in printed] == []
    assert "Mean ranks over 1 tables" in printed
    assert kept == {path: path.read_text() for path in _report.PROGRAMS.glob("results/*/*.json")}
