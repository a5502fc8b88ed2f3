"""SIGKILL at random points of `run_fn`: in steps, in a checkpoint, in evaluation, in export.

Reference: the run that was never killed, bit for bit: the exported variables, those of the last
checkpoint (optimizer, moving average, best epoch), the metrics and their history. Equal bits of a
shuffled run mean that each row was seen as often. Of two workers one is killed; the other exits.
One run reads TFRecord files, the others Parquet files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import parquet_files
import pytest
import small_transform

pytestmark = pytest.mark.distributed

ROOT = Path(__file__).resolve().parents[2]
TRAINER = {
    "label": "generous",
    "global_batch_size": 50,
    "micro_batch_size": 10,
    "epochs": 5,
    "steps_per_loop": 2,
    "checkpoint_every_steps": 4,
    "early_stopping": {"patience_epochs": 3},
    "ema_momentum": 0.9,
    "model": {"dropout": 0.1},
}
PLACES = {
    "one_device": {"strategy": "one_device"},
    "multi_worker": {"strategy": "multi_worker"},
}
TIMES = {"one_device": 2, "multi_worker": 1}  # kills in each phase but the export


@pytest.fixture(scope="module")
def transformed(tmp_path_factory):
    """Folders with `graph`, `train` and `eval`, by format."""
    records, parquet = (tmp_path_factory.mktemp(name) for name in ("tfrecord", "parquet"))
    made = small_transform.run_transform(records, small_transform.preprocessing_fn)
    parquet_files.as_parquet(made, parquet)
    (parquet / "graph").symlink_to(made.graph)
    return {"tfrecord": records, "parquet": parquet}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("place", PLACES)
def test_a_run_that_is_killed_in_each_phase_ends_with_the_same_bits(transformed, tmp_path, place):
    transform = transformed["tfrecord" if place == "one_device" else "parquet"]
    program = [sys.executable, str(Path(__file__).with_name("kills.py"))]
    done = subprocess.run(
        [
            *program,
            *("--transform", str(transform), "--folder", str(tmp_path)),
            *("--trainer", json.dumps({**TRAINER, **PLACES[place]})),
            *("--workers", "2" if place == "multi_worker" else "1"),
            *("--times", str(TIMES[place])),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TF_USE_LEGACY_KERAS": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    report = json.loads(done.stdout)
    each = TIMES[place]
    assert Counter(phase for phase, *_ in report["kills"]) == {
        "steps": each,
        "checkpoint": each,
        "evaluation": each,
        "export": 1,
    }
