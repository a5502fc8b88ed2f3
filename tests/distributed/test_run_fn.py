"""run_fn in several processes, on a real Transform output, against one process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import psutil
import pytest
import small_transform
import tensorflow as tf
from on_workers import HERE, command, environment, on_workers
from trains import fn_args

from trainer_module import run_fn
from trainer_module.devices.local_cluster import WorkersFailed

pytestmark = pytest.mark.distributed

TRAINER = {
    "global_batch_size": 50,
    "micro_batch_size": 7,
    "epochs": 3,
    "optimizer": {"name": "sgd", "learning_rate": 0.05},
    "metrics": ["auc", "f1_score"],
    "early_stopping": {"monitor": "auc", "patience_epochs": 9},
    "checkpoint_every_steps": 10,
}


def asked(data, of_worker=None, **more) -> str:
    trainer = {**TRAINER, **more}
    return json.dumps({"data": data, "trainer": trainer, "of_worker": of_worker or {}})


def served(folder) -> np.ndarray:
    """Outputs of the exported model on raw rows."""
    serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
    rows = [small_transform.serialized(row) for row in small_transform.raw_rows(50, seed=9)]
    return serve(tf.constant(rows))["outputs"].numpy()


@pytest.fixture(scope="module")
def alone(packed, tmp_path_factory):
    """The result of one process, and its folder."""
    folder = tmp_path_factory.mktemp("alone")
    keras.utils.set_random_seed(0)
    result = run_fn(fn_args(str(folder), packed, TRAINER, baselines="eval"))
    return result, folder


@pytest.fixture(scope="module")
def together(packed, tmp_path_factory):
    """The values that each of several workers sent, and their folder."""
    folder = tmp_path_factory.mktemp("together")
    return on_workers("trains", folder, asked(packed), workers=3), folder


def test_they_end_as_one_process_does(alone, together):
    """Reference: one process. Tolerance 1e-5 relative in float32 over 36 steps of SGD."""
    (expected, folder), (sent, shared) = alone, together
    results = []
    for number, each in enumerate(sent):
        found = dict(each)
        assert found["worker"] == number
        assert found["there"] is True  # when it returns: TFX fails a worker without
        assert found["label"] is True
        results.append(found["result"])
    assert all(result == results[0] for result in results)
    result = results[0]
    assert (result["steps"], result["epochs"]) == (expected.steps, expected.epochs)
    assert set(result["history"]) == {"loss", "val_loss", "val_auc", "val_f1_score"}
    for name, values in expected.history.items():
        assert result["history"][name] == pytest.approx(values, rel=1e-5)
    np.testing.assert_allclose(
        served(shared / "serving"), served(folder / "serving"), rtol=1e-5, atol=1e-6
    )


def test_the_chief_alone_writes(alone, together):
    """The files are those of one process, except for names that contain the time."""

    def names(folder: Path) -> list[str]:
        files = (file.relative_to(folder) for file in folder.rglob("*") if file.is_file())
        return sorted(f"{f.parent}/{f.name.partition('tfevents')[0]}" for f in files)

    assert names(together[1]) == names(alone[1])


def test_a_difference_in_settings_is_reported_before_any_read(packed, tmp_path):
    text = asked(packed, of_worker={"1": {"seed": 4}})
    with pytest.raises(WorkersFailed) as caught:
        on_workers("trains", tmp_path, text, workers=2)
    assert {each.name: each.code for each in caught.value.failed} == {"worker 0": 1, "worker 1": 1}
    for each in caught.value.failed:
        message = "\n".join(each.tail)
        assert "the workers differ in their settings" in message
        assert "seed is 4 there and 0 on worker 0" in message
    assert not (tmp_path / "run").exists()


def test_sigterm_on_one_worker_saves_on_both_and_a_restart_ends_with_the_same_result(
    packed, alone, tmp_path
):
    """Reference: the same two workers without the signal. Tolerance: none, bit for bit."""
    more = {
        "steps_per_loop": 1,
        "epochs": 8,
        "early_stopping": None,
        "checkpoint_every_minutes": 0.005,  # several on the way, by the chief's clock
    }
    straight = on_workers("trains", tmp_path / "straight", asked(packed, **more), workers=2)
    stopped = tmp_path / "stopped"
    text = asked(packed, **more)
    launcher = subprocess.Popen(
        [
            *(sys.executable, "-m", "trainer_module.launch", "--log-dir", str(tmp_path / "logs")),
            *("--", *command("trains", stopped, text)),
        ],
        cwd=HERE.parents[2],
        env=environment(TRAINS_SLOWLY="0.1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert launcher.stdout is not None
    lines, sent = [], False
    for line in launcher.stdout:
        lines.append(line)
        if not sent and "epoch 2 eval" in line:
            (other,) = children(launcher.pid, "worker", 1)
            other.send_signal(signal.SIGTERM)
            sent = True
    assert launcher.wait() == 143, "".join(lines[-30:])
    saved = [line for line in lines if line.startswith("[worker") and "SIGTERM: step" in line]
    assert len(saved) == 2  # at the same step
    assert len({line.partition("SIGTERM: ")[2] for line in saved}) == 1
    again = on_workers("trains", stopped, text, workers=2)
    assert [dict(each)["result"] for each in again] == [dict(each)["result"] for each in straight]
    np.testing.assert_array_equal(
        served(stopped / "serving"), served(tmp_path / "straight" / "serving")
    )


def children(pid: int, role: str, index: int):
    """The launched process of a task."""
    found = []
    for child in psutil.Process(pid).children():
        task = json.loads(child.environ().get("TF_CONFIG", "{}")).get("task", {})
        if (task.get("type"), task.get("index")) == (role, index):
            found.append(child)
    return found
