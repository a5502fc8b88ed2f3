"""`summary.json` compared with TFMA's own result and with the terminal's output."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tensorflow_model_analysis as tfma
from frame_evaluation import evaluate_frame
from rich.console import Console

from pipeline.config.config import PipelineConfig
from pipeline.config.config_file import load_config
from pipeline.report import slices, summary, summary_file, verdict
from pipeline.report.against_constant import Comparison, explain_refusal, format_bound
from pipeline.report.progress import NodeState, RunState, Timing
from pipeline.report.records import NodeRecord, OutputArtifact
from pipeline.report.summary_file import summary_of, write_summary
from trainer_module.baselines.record import Baseline, Baselines
from trainer_module.common.progress import TrainingEnded

ROWS = {"train": 60, "eval": 8}
TRAINING = TrainingEnded("epochs", 50, {}, noise_scale=512.0, global_batch=128.0)
STATE = RunState(
    [
        NodeState(
            "Trainer",
            "cached",
            training=TRAINING,
            computed=Timing(15.3, None),
        ),
        NodeState("Evaluator", "done", started=10.0, ended=12.5, rows=8),
    ]
)
THRESHOLDS = {"binary_accuracy": {"lower_bound": 0.9}, "auc": {"upper_bound": 0.99}}


def evaluated(
    write: Any, folder: Path, evaluation: Any, other: str = "Lima"
) -> tuple[PipelineConfig, dict[str, Any]]:
    """A configuration, and the records of a run that was not blessed.

    The rows of Lima are of one class, so that their AUC is undefined.
    """

    def change(config: dict[str, Any]) -> None:
        config["evaluation"] = {"metrics": ["auc", "precision"], "slices": ["city"], **evaluation}

    config = load_config(write(change))
    rows = pd.DataFrame(
        {
            "bought": [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0],
            "prediction": [0.1, 0.7, 0.4, 0.35, 0.8, 0.2, 0.3, 0.9],
            "city": ["Oslo"] * 5 + [other] * 3,
        }
    )
    uri = evaluate_frame(config.evaluation, rows, folder / "evaluation")
    run = folder / "model_run"
    run.mkdir()
    (run / "baselines.json").write_text(BASELINES)
    records = {
        "Evaluator": NodeRecord(
            "Evaluator",
            {
                "evaluation": [OutputArtifact(uri, {})],
                "blessing": [OutputArtifact(str(folder / "blessing"), {"blessed": 0})],
            },
        ),
        "Trainer": NodeRecord(
            "Trainer",
            {
                "model": [OutputArtifact(str(folder / "model"), {})],
                "model_run": [OutputArtifact(str(run), {})],
            },
        ),
    }
    return config, records


CONSTANT = Baseline("constant", "always 0.6", {"auc": 0.5, "precision": None})
BASELINES = Baselines(60, 8, (CONSTANT,), "").to_json()


def strict(text: str) -> dict[str, Any]:
    """JSON without the numbers that JavaScript and others do not know."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    return json.loads(text, parse_constant=refuse)


def test_it_is_what_the_evaluator_found_and_the_terminal_shows(write: Any, tmp_path: Path) -> None:
    config, records = evaluated(write, tmp_path, {"thresholds": THRESHOLDS})
    file = write_summary(config, summary_of(config, records, STATE, run_id="2026-01-31", rows=ROWS))
    assert file == Path(config.output.folder) / "summary.json"
    found = strict(file.read_text(encoding="utf-8"))
    assert found["version"] == 1
    assert found["run"]["id"] == "2026-01-31"
    assert found["rows"] == ROWS
    assert found["judged_split"] == "eval"
    assert found["label"] == {"column": "bought", "kind": "binary"}
    few = {each["number"]: each for each in found["warnings"] if "unreliable" in each["what"]}
    assert few[8]["source"] == "Evaluator"
    assert few[8]["fix"]
    assert found["model"] == str(tmp_path / "model")
    assert found["pushed_model"] is None
    assert found["gradient_noise_scale"] == {"rows": 512.0, "global_batch_rows": 128.0}
    assert [node["result"] for node in found["nodes"]] == ["cached", "done"]
    assert [node["rows"] for node in found["nodes"]] == [None, 8]
    # For the next run, what a cached node took when it was computed.
    computed = {"Trainer": Timing(15.3, None), "Evaluator": Timing(2.5, 8)}
    assert summary_file.last_computed(config) == computed
    assert found["thresholds"]["auc"] == {
        "lower_bound": None,
        "upper_bound": 0.99,
        "max_loss": None,
    }

    result = tfma.load_eval_result(records["Evaluator"].output("evaluation").uri)
    assert len(found["slices"]) == len(result.slicing_metrics) == 3
    for each in found["slices"]:
        key = tuple(each["slice"].items())
        (metrics,) = (values[""][""] for name, values in result.slicing_metrics if name == key)
        assert each["rows"] == metrics["rows"]["doubleValue"]
        for name, value in each["metrics"].items():
            wanted = float(metrics[name]["doubleValue"])
            assert (value is None) if math.isnan(wanted) else (value == wanted)
    (lima,) = (each for each in found["slices"] if each["slice"] == {"city": "Lima"})
    assert lima["metrics"]["auc"] is None
    all_rows = found["slices"][0]
    assert all_rows["slice"] == {}
    assert {name: each["value"] for name, each in found["metrics"].items()} == all_rows["metrics"]

    out = io.StringIO()
    console = Console(file=out, width=200)
    summary.show_metrics(config, records, console)
    verdict.show_verdict(config, records, console)
    shown = out.getvalue()
    lines = {line.split("  ")[0]: line.split() for line in shown.splitlines() if line.strip()}
    for name, slice_of in (("all rows", {}), ("city=Lima", {"city": "Lima"})):
        (each,) = (one for one in found["slices"] if one["slice"] == slice_of)
        cells = [
            "undefined" if value is None else f"{value:.4f}" for value in each["metrics"].values()
        ]
        assert lines[name][-len(cells) :] == cells
    (constant,) = found["baselines"]
    assert constant["metrics"] == {"auc": 0.5, "precision": None, "binary_accuracy": None}
    assert found["verdict"]["result"] == "not blessed"
    for reason in found["verdict"]["reasons"]:
        assert reason in shown
    assert found["verdict"]["reasons"]
    against = found["verdict"]["against_constant"]
    assert against["metric"] == "binary_accuracy"
    assert against["rows"] == 8


def test_a_slice_that_is_no_number_is_a_text(
    write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, records = evaluated(write, tmp_path, {})
    (_, metrics), *_ = slices.slices_of(records["Evaluator"].output("evaluation").uri)
    rows = [((), metrics), ((("fare", math.nan),), metrics)]
    monkeypatch.setattr(slices, "slices_of", lambda uri: rows)
    monkeypatch.setattr(summary_file, "slices_of", lambda uri: rows)
    file = write_summary(config, summary_of(config, records, STATE, run_id="", rows={}))
    found = strict(file.read_text(encoding="utf-8"))
    assert [each["slice"] for each in found["slices"]] == [{}, {"fare": "nan"}]


def test_names_are_not_markup(write: Any, tmp_path: Path) -> None:
    city = "[/x] [red] :cat:"
    config, records = evaluated(write, tmp_path, {}, city)
    out = io.StringIO()
    summary.show_metrics(config, records, Console(file=out, width=200))
    assert f"city={city}" in out.getvalue()
    found = summary_of(config, records, STATE, run_id="", rows={})
    assert {"city": city} in [each["slice"] for each in found["slices"]]


@pytest.mark.parametrize(
    ("properties", "evaluation", "result"),
    [
        ({"blessed": 1, "baseline_model_id": 3}, {"thresholds": THRESHOLDS}, "blessed"),
        ({}, {}, "not judged"),
    ],
)
def test_the_verdict(
    write: Any, monkeypatch: pytest.MonkeyPatch, properties: Any, evaluation: Any, result: str
) -> None:
    config = load_config(write(lambda c: c["evaluation"].update(evaluation)))
    blessing = OutputArtifact("blessing", properties)
    records = {"Evaluator": NodeRecord("Evaluator", {"blessing": [blessing]})}
    verdict = summary_of(config, records, STATE, run_id="", rows={})["verdict"]
    assert verdict["result"] == result
    assert bool(verdict["reasons"]) == (result != "blessed")
    assert verdict["compared_with_blessed_model"] == ("baseline_model_id" in properties)


def test_a_run_without_an_evaluator(write: Any) -> None:
    config = load_config(write())
    found = summary_of(config, {}, RunState([]), run_id="", rows={})
    assert found["slices"] == []
    assert found["metrics"]["auc"]["value"] is None
    assert found["verdict"]["result"] == "not judged"
    strict(json.dumps(found))


def test_a_pushed_model_is_named_while_it_is_there(write: Any, tmp_path: Path) -> None:
    config = load_config(write())
    pushed = tmp_path / "serving_model" / "1"
    properties = {"pushed": 1, "pushed_destination": str(pushed)}
    output = OutputArtifact("pushed_model", properties)
    records = {"Pusher": NodeRecord("Pusher", {"pushed_model": [output]})}
    assert summary_of(config, records, STATE, run_id="", rows={})["pushed_model"] is None
    pushed.mkdir(parents=True)
    assert summary_of(config, records, STATE, run_id="", rows={})["pushed_model"] == str(pushed)


def test_a_refusal_names_chance_where_that_can_explain_the_difference() -> None:
    by_chance = explain_refusal(Comparison(0.6, 0.5, 0.04, 50), "auc")
    assert "4.0% of random orders" in by_chance
    worse = explain_refusal(Comparison(0.4, 0.5, 1.0, 50), "auc")
    assert "not better than a constant" in worse
    assert "random" not in worse
    assert "not compared" in explain_refusal(Comparison(math.nan, math.nan, 1.0, 1), "auc")


@pytest.mark.parametrize(
    ("metric", "constant", "shown"),
    [("auc", 0.5, "> 0.5"), ("mean_absolute_error", 8.25, "< 8.25"), ("auc", math.nan, "")],
)
def test_the_bound_of_a_constant(metric: str, constant: float, shown: str) -> None:
    assert format_bound(Comparison(1.0, constant, 1.0, 50), metric) == shown


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"pipeline": "small", "nodes": [{"name": "Trainer"}]}', '{"pipeline": "other"}'],
)
def test_no_times_are_known_from_another_file(write: Any, text: str) -> None:
    config = load_config(write())
    assert summary_file.last_computed(config) == {}
    write_summary(config, {}).write_text(text)
    assert summary_file.last_computed(config) == {}


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
