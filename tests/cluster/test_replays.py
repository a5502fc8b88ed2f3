"""The taxi pipeline compiled for both targets and replayed whole, command by command."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import tfx

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
TAXI = ROOT / "examples" / "taxi" / "pipeline.yaml"
DATA = Path(tfx.__file__).parent / "examples" / "chicago_taxi_pipeline" / "data" / "simple"
BUCKETS = {"kubeflow": "s3://bucket", "vertex": "gs://bucket"}
# Alone it would be good enough; beside the one before it is not.
WORSE = (
    "training.epochs=1",
    "evaluation.thresholds.auc.lower_bound=0.5",
    "evaluation.thresholds.binary_accuracy.lower_bound=0.5",
)


def pipeline(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def replay(target, folder, *overrides):
    """Compiles and replays; returns the code and what was printed."""
    bucket = BUCKETS[target]
    settings = {
        f"cluster.{target}.image": "registry.example/tfx-largebatch:1.0",
        f"cluster.{target}.pipeline_root": f"{bucket}/root",
        f"cluster.{target}.data_path": f"{bucket}/data/data.csv",
    }
    given = [f"--set={name}={value}" for name, value in settings.items()]
    file = folder / f"taxi-{target}.yaml"
    code, told = pipeline(
        *("compile", "--target", target, "--config", TAXI, "--output", file),
        *given,
        *(f"--set={each}" for each in overrides),
    )
    assert code == 0, told
    return pipeline(
        *("replay", "--spec", file, "--map", f"{bucket}/data={DATA}", "--root", folder / "root")
    )


def pushed(folder):
    return sorted((folder / "root" / "chicago-taxi" / "serving_model").glob("*/saved_model.pb"))


def nodes(told):
    return re.findall(r"^(\S+): done in", told, flags=re.MULTILINE)


def test_kubeflow_pushes_a_blessed_model_and_compares_a_worse_one_with_it(tmp_path):
    code, told = replay("kubeflow", tmp_path)
    assert code == 0, told
    assert "blessed; compared with nothing: none was blessed before" in told
    assert len(pushed(tmp_path)) == 1
    assert {"LatestBlessedModel", "Transform", "Trainer", "BlessedModelRecord"} <= set(nodes(told))
    code, told = replay("kubeflow", tmp_path, *WORSE)
    assert code == 3, told
    assert "not blessed; compared with the latest blessed model" in told
    assert len(pushed(tmp_path)) == 1


def test_vertex_trains_on_two_workers_runs_the_driver_and_resolves_its_baseline(tmp_path):
    code, told = replay("vertex", tmp_path, "training.workers=2")
    assert code == 0, told
    assert {"LatestBlessedModel-model-resolver", "ArrowExampleGen", "Pusher"} <= set(nodes(told))
    assert len(pushed(tmp_path)) == 1
    (log,) = tmp_path.glob("root/chicago-taxi/*/ArrowExampleGen/log.txt")
    assert "Calculated fingerprint" in log.read_text(errors="replace")
    workers = tmp_path.glob("root/chicago-taxi/*/Trainer/workers/*.log")
    assert sorted(path.name for path in workers) == ["chief.log", "worker-0.log"]
    code, told = replay("vertex", tmp_path, *WORSE)
    assert code == 3, told
    assert "not blessed; compared with the latest blessed model" in told
    assert len(pushed(tmp_path)) == 1
