"""`trainer.workers`: one Trainer node starts its workers as processes of this machine."""

from __future__ import annotations

import logging
import re

import pytest
from absl import logging as absl_logging
from command_line import ROOT, TAXI, run_pipeline
from trains import fn_args

from trainer_module import run_fn
from trainer_module.common.progress import EvaluationEnded, TrainingEnded, progress_of

pytestmark = pytest.mark.distributed

TRAINER = {
    "strategy": "multi_worker",
    "workers": 2,
    "global_batch_size": 50,
    "epochs": 2,
    "tensorboard": False,
}


def test_the_chiefs_progress_and_result_are_those_of_the_node(packed, tmp_path):
    records = []

    class Keep(logging.Handler):
        def emit(self, record):
            records.append(progress_of(record))

    handler, verbosity = Keep(), absl_logging.get_verbosity()
    absl_logging.get_absl_logger().addHandler(handler)
    absl_logging.set_verbosity(absl_logging.INFO)
    try:
        result = run_fn(fn_args(str(tmp_path), packed, TRAINER))
    finally:
        absl_logging.get_absl_logger().removeHandler(handler)
        absl_logging.set_verbosity(verbosity)
    assert (result.steps, result.epochs, result.stopped) == (24, 2, "epochs")
    ended = [each for each in records if isinstance(each, EvaluationEnded)]
    assert [dict(each.metrics) for each in ended][-1] == result.metrics
    assert sum(isinstance(each, TrainingEnded) for each in records) == 1
    assert (tmp_path / "serving" / "saved_model.pb").exists()
    logs = {path.name: path.read_text() for path in (tmp_path / "run" / "workers").iterdir()}
    assert set(logs) == {"worker-0.log", "worker-1.log"}
    assert "Worker 1 of 2" in logs["worker-1.log"]


def test_the_failed_worker_is_named_with_its_error_and_log(packed, tmp_path):
    trainer = {**TRAINER, "model_fn": "user_model.fails_on_worker_1"}
    with pytest.raises(RuntimeError) as caught:
        run_fn(fn_args(str(tmp_path), packed, trainer))
    message = str(caught.value)
    log = tmp_path / "run" / "workers" / "worker-1.log"
    assert message.startswith("training on 2 workers of this machine: worker 1 ended with code 1")
    assert f"its log is {log}" in message
    assert "FileNotFoundError: embeddings.npy is not on this machine" in message
    assert "embeddings.npy" in log.read_text()


def pipeline(*arguments):
    return run_pipeline("run", "--config", TAXI, *arguments)


def auc(output):
    (line,) = re.findall(r"^all rows +4,998 .*$", output, flags=re.MULTILINE)
    return float(line.split()[4])


def test_a_pipeline_with_two_workers_ends_as_with_one(tmp_path):
    """The AUC that README.md shows of one process, to 0.003."""
    two_workers = ("--set=training.strategy=multi_worker", "--set=training.workers=2")
    code, output = pipeline(f"--set=output.folder={tmp_path}", *two_workers)
    assert code == 0, output
    assert re.search(r"Trainer: epoch 10: eval .*auc", output)
    one = (ROOT / "README.md").read_text(encoding="utf-8")
    assert auc(output) == pytest.approx(auc(one), abs=0.003)
    assert list(tmp_path.glob("artifacts/Trainer/model_run/*/workers/worker-1.log"))


def test_several_workers_without_their_number_are_refused_before_any_node(tmp_path):
    code, output = pipeline(
        f"--set=output.folder={tmp_path}", "--set=training.strategy=multi_worker"
    )
    assert code == 2
    assert "training.strategy=multi_worker: say how many with training.workers" in output
