"""`summary.json` compared with TFMA's own result and with the terminal's output."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tensorflow_model_analysis as tfma
from frame_evaluation import evaluate_frame
from run_inputs import lines_of, result_of, slice_of

from pipeline.config.config_file import load_config
from pipeline.report import summary
from pipeline.report.progress import NodeState, RunState
from pipeline.report.summary_file import summary_of, write_summary
from trainer_module.baselines.record import Baseline, Baselines
from trainer_module.common.progress import TrainingEnded

ROWS = {"train": 60, "eval": 8}
TRAINING = TrainingEnded("epochs", 50, {}, noise_scale=512.0, global_batch=128.0)
STATE = RunState(
    [
        NodeState("Trainer", "cached", training=TRAINING),
        NodeState("Evaluator", "done", started=10.0, ended=12.5, rows=8),
    ]
)
CONSTANT = Baseline("constant", "always 0.6", {"auc": 0.5, "precision": None})


def strict(text: str) -> dict[str, Any]:
    """JSON without the numbers that JavaScript and others do not know."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    return json.loads(text, parse_constant=refuse)


def test_it_is_what_the_evaluator_found_and_the_terminal_shows(write: Any, tmp_path: Path) -> None:
    """The rows of Lima are of one class, so that their AUC is undefined."""
    thresholds = {"binary_accuracy": {"lower_bound": 0.9}, "auc": {"upper_bound": 0.99}}
    evaluation = {"metrics": ["auc", "precision"], "slices": ["city"], "thresholds": thresholds}
    config = load_config(write(lambda c: c.update(evaluation=evaluation)))
    frame = pd.DataFrame(
        {
            "bought": [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0],
            "prediction": [0.1, 0.7, 0.4, 0.35, 0.8, 0.2, 0.3, 0.9],
            "city": ["Oslo"] * 5 + ["Lima"] * 3,
        }
    )
    uri = evaluate_frame(config.evaluation, frame, tmp_path / "evaluation")
    (tmp_path / "baselines.json").write_text(Baselines(60, 8, (CONSTANT,), "").to_json())
    artifacts = {
        ("Evaluator", "evaluation"): uri,
        ("Evaluator", "blessing"): {"blessed": 0},
        ("Trainer", "model"): tmp_path / "model",
        ("Trainer", "model_run"): tmp_path,
    }
    run = result_of(config, artifacts)
    file = write_summary(config, summary_of(run, STATE, run_id="2026-01-31", rows=ROWS))
    assert file == Path(config.output.folder) / "summary.json"
    content = strict(file.read_text(encoding="utf-8"))
    assert content["version"] == 2
    assert content["run"]["id"] == "2026-01-31"
    assert content["rows"] == ROWS
    assert content["judged_split"] == "eval"
    assert content["label"] == {"column": "bought", "kind": "binary"}
    few = {each["number"]: each for each in content["warnings"] if "unreliable" in each["what"]}
    assert few[8]["source"] == "Evaluator"
    assert content["model"] == str(tmp_path / "model")
    assert content["gradient_noise_scale"] == {"rows": 512.0, "global_batch_rows": 128.0}
    nodes = [(node["result"], node["seconds"], node["rows"]) for node in content["nodes"]]
    assert nodes[1] == ("done", 2.5, 8)
    bounds = {"lower_bound": None, "upper_bound": 0.99, "max_loss": None}
    assert content["thresholds"]["auc"] == bounds

    result = tfma.load_eval_result(uri)
    assert len(content["slices"]) == len(result.slicing_metrics) == 3
    for each in content["slices"]:
        key = tuple(each["slice"].items())
        (metrics,) = (values[""][""] for name, values in result.slicing_metrics if name == key)
        assert each["rows"] == metrics["rows"]["doubleValue"]
        for name, value in each["metrics"].items():
            expected = float(metrics[name]["doubleValue"])
            assert (value is None) if math.isnan(expected) else (value == expected)
    by_city = {each["slice"].get("city"): each["metrics"] for each in content["slices"]}
    assert by_city["Lima"]["auc"] is None
    assert {name: each["value"] for name, each in content["metrics"].items()} == by_city[None]
    lines = {line[0]: line for line in lines_of(summary.show_metrics, run)}
    for name, city in (("all", None), ("city=Lima", "Lima")):
        values = by_city[city].values()
        cells = ["undefined" if value is None else f"{value:.4f}" for value in values]
        assert lines[name][-len(cells) :] == cells
    (constant,) = content["baselines"]
    assert constant["metrics"] == {"auc": 0.5, "precision": None, "binary_accuracy": None}
    verdict = content["verdict"]
    shown = [" ".join(line) for line in lines_of(summary.show_verdict, run)]
    assert verdict["result"] == "not blessed"
    assert shown == ["not blessed, so not pushed:", *verdict["reasons"]]
    assert verdict["reasons"]
    assert (verdict["against_constant"]["metric"], verdict["against_constant"]["rows"]) == (
        "binary_accuracy",
        8,
    )


def test_a_slice_that_is_no_number_is_a_text(write: Any) -> None:
    run = result_of(load_config(write()), {})
    run.__dict__["slices"] = (slice_of(), slice_of((("fare", math.nan),), auc=math.inf))
    content = summary_of(run, STATE, run_id="", rows={})
    assert [each["slice"] for each in content["slices"]] == [{}, {"fare": "nan"}]
    assert content["slices"][1]["metrics"] == {"auc": None}
    strict(json.dumps(content, allow_nan=False))


def test_runs_that_judge_no_model_and_one_that_failed(write: Any) -> None:
    config = load_config(write())
    content = summary_of(result_of(config, {}), RunState([]), run_id="", rows={})
    assert (content["slices"], content["metrics"]["auc"]["value"]) == ([], None)
    assert content["verdict"] == {"result": "not judged", "reasons": []}
    assert content["run"]["error"] is None
    state = RunState([NodeState("Trainer", "failed")])
    run = summary_of(result_of(config, {}), state, run_id="", rows={}, error="no memory")["run"]
    assert (run["result"], run["error"]) == ("failed", {"node": "Trainer", "message": "no memory"})


def test_a_file_that_is_not_whole_takes_no_place(
    write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(write())
    file = write_summary(config, {"run": "first"})
    monkeypatch.setattr(json, "dump", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_summary(config, {"run": "second"})
    assert strict(file.read_text()) == {"run": "first"}
    assert [each.name for each in file.parent.iterdir()] == ["summary.json"]
