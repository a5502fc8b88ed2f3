"""A Trainer on Kubeflow whose pod is killed, and started again by `cluster.kubeflow.retries`."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import tensorflow as tf
import tfx
from command_line import ROOT, TAXI, run_command, run_pipeline

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

DATA = Path(tfx.__file__).parent / "examples" / "chicago_taxi_pipeline" / "data" / "simple"
SETTINGS = {
    "cluster.kubeflow.image": "registry.example/tfx-largebatch:1.0",
    "cluster.kubeflow.pipeline_root": "s3://bucket/root",
    "cluster.kubeflow.data_path": "s3://bucket/data/data.csv",
    "cluster.kubeflow.retries": 1,
    "training.epochs": 4,
    "training.steps_per_loop": 5,
    "training.checkpoint_every_minutes": 0.0001,  # after each call of the graph
}


def kill_after_a_checkpoint(replay, root):
    """Kills the Trainer by SIGKILL once it has saved a checkpoint; returns its command line."""
    while replay.poll() is None:
        if any(root.glob("chicago-taxi/*/Trainer/**/ckpt-*.index")):
            for process in psutil.Process(replay.pid).children(recursive=True):
                words = process.cmdline()
                if "pipeline.targets.entry_point" in words:
                    process.kill()
                    return words
        time.sleep(0.02)
    raise AssertionError("the replay ended before the Trainer had saved a checkpoint")


def exported(folder):
    """Returns the shape and the bytes of each variable of the model in a Trainer's folder.

    Sorted by them: a SavedModel numbers its variables in another order in each process.
    """
    (index,) = folder.glob("*/Format-Serving/variables/variables.index")
    reader = tf.train.load_checkpoint(str(index.with_suffix("")))
    names = [n for n in reader.get_variable_to_shape_map() if n.startswith("_all_variables/")]
    values = [reader.get_tensor(name) for name in names]
    return sorted((value.shape, value.tobytes()) for value in values)


def test_a_killed_trainer_continues_from_its_last_checkpoint(tmp_path):
    """Reference: the same Trainer without a kill. Tolerance: none, bit for bit."""
    spec, root, output = tmp_path / "taxi.yaml", tmp_path / "root", tmp_path / "replay.txt"
    code, printed = run_pipeline(
        *("compile", "--target", "kubeflow", "--config", TAXI, "--output", spec),
        *(f"--set={name}={value}" for name, value in SETTINGS.items()),
    )
    assert code == 0, printed
    command = [sys.executable, "-m", "pipeline", "replay", "--spec", spec, "--root", root]
    with output.open("w") as stream:
        replay = subprocess.Popen(
            [*map(str, command), f"--map=s3://bucket/data={DATA}"],
            cwd=ROOT,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    try:
        words = kill_after_a_checkpoint(replay, root)
        while replay.poll() is None and "Trainer: done" not in output.read_text():
            time.sleep(0.1)
    finally:
        replay.terminate()  # what follows the Trainer is of no interest
        replay.wait()
    printed = output.read_text()
    assert re.search(r"^Trainer: done in .*attempt 2", printed, flags=re.MULTILINE), printed

    (trainer,) = root.glob("chicago-taxi/*/Trainer")
    log = (trainer / "log.txt").read_text(errors="replace")
    # In the middle of the first epoch, so that it was saved because of the time.
    (step,) = re.findall(r"Continuing at step (\d+), epoch 1\b", log)
    assert int(step) >= 5

    straight = trainer.with_name("straight")
    straight.mkdir()
    code, printed = run_command(*(word.replace(f"{trainer}/", f"{straight}/") for word in words))
    assert code == 0, printed
    assert "Continuing" not in printed
    found, expected = exported(trainer), exported(straight)
    assert len(expected) > 5
    assert found == expected
