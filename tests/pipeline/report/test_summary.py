"""The printed verdict on a model, and the thresholds that TFX's Evaluator gets."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import keras
import pytest
from frame_evaluation import evaluate_frame
from rich.console import Console

from pipeline.config.config_file import load_config
from pipeline.config.evaluation import EvaluationConfig
from pipeline.report import run_warnings, summary, verdict
from pipeline.report.console import Consoles
from pipeline.report.progress import NodeState, RunState
from pipeline.report.records import NodeRecord, OutputArtifact
from trainer_module.checks.warn_once import warn_once, write_warnings


def test_without_a_threshold_the_reason_is_that(write: Any, tmp_path: Path) -> None:
    """As TFX's Evaluator leaves its outputs then: nothing validated, no `blessed` property."""
    outputs = {key: [OutputArtifact(str(tmp_path / key), {})] for key in ("blessing", "evaluation")}
    out = io.StringIO()
    records = {"Evaluator": NodeRecord("Evaluator", outputs)}
    verdict.show_verdict(load_config(write()), records, Console(file=out, width=200))
    assert out.getvalue().splitlines() == [
        "not judged, so not pushed:",
        "  evaluation.thresholds is empty, and TFX's Evaluator blesses no model without one: "
        "give a lower_bound, an upper_bound or a max_loss for a metric, such as auc, or set "
        "evaluation.require_better_than_constant: true",
    ]


@pytest.mark.parametrize(
    ("thresholds", "status", "properties", "fails"),
    [
        ({"auc": {"lower_bound": 0.6}}, "done", {"blessed": 0}, True),
        ({"auc": {"lower_bound": 0.6}}, "cached", {"blessed": 0}, True),
        ({"auc": {"lower_bound": 0.6}}, "done", {"blessed": 1}, False),
        ({"auc": {"lower_bound": 0.6}}, "waiting", {"blessed": 0}, False),  # nothing has run
        ({}, "done", {}, False),  # nothing is judged
    ],
)
def test_a_violated_threshold_decides_the_exit_code(
    write: Any,
    monkeypatch: pytest.MonkeyPatch,
    thresholds: Any,
    status: Any,
    properties: Any,
    fails: bool,
) -> None:
    config = load_config(write(lambda c: c["evaluation"].update(thresholds=thresholds)))
    record = NodeRecord("Evaluator", {"blessing": [OutputArtifact("", properties)]})
    monkeypatch.setattr(verdict, "latest_run_of", lambda config: {"Evaluator": record})
    state = RunState([NodeState("Trainer", "done"), NodeState("Evaluator", status)])
    assert verdict.fails_a_threshold(config, state) == fails


@pytest.mark.slow
def test_rows_weights_and_what_is_undefined(write: Any, tmp_path: Path) -> None:
    """Reference: by hand, of four rows that weigh 0.5, 2, 1, 1; one label is infinite."""
    import pandas
    import pyarrow as pa
    import pyarrow.parquet as pq

    def change(config: dict[str, Any]) -> None:
        config["features"]["label"]["kind"] = "regression"
        config["features"]["weight"] = "amount"
        config["features"]["groups"][0]["columns"] = ["age"]
        config["evaluation"] = {
            "metrics": ["root_mean_squared_error"],
            "slices": ["city"],
            "thresholds": {"mean_absolute_error": {"upper_bound": 9}},
        }

    config = load_config(write(change))
    rows = pandas.DataFrame(
        {
            "bought": [1.0, 2.0, float("inf"), 4.0],
            "prediction": [1.0, 1.0, 1.0, 1.0],
            "amount": [0.5, 2.0, 1.0, 1.0],
            "city": ["Oslo", "Lima", "Lima", "Oslo"],
        }
    )
    folder = tmp_path / "evaluation"
    uri = evaluate_frame(config.evaluation, rows, folder, kind="regression", weight="amount")
    (tmp_path / "examples" / "Split-eval").mkdir(parents=True)
    labels = pa.array([[1.0], [2.0], [float("nan")], [4.0]], pa.large_list(pa.float32()))
    table = pa.table({"bought": labels})
    pq.write_table(table, tmp_path / "examples" / "Split-eval" / "a.parquet", row_group_size=2)

    outputs = {
        "evaluation": [OutputArtifact(uri, {})],
        "blessing": [OutputArtifact(str(tmp_path / "blessing"), {"blessed": 0})],
    }
    examples = {"transformed_examples": [OutputArtifact(str(tmp_path / "examples"), {})]}
    records = {
        "Evaluator": NodeRecord("Evaluator", outputs),
        "Transform": NodeRecord("Transform", examples),
    }
    out = io.StringIO()
    console = Console(file=out, width=300)
    console.print(summary.metrics_table(config, records["Evaluator"]))
    verdict.show_verdict(config, records, console)
    lines = [line.split() for line in out.getvalue().splitlines()]
    assert lines[0][:5] == ["slice", "rows", "weights", "mean", "label"]
    assert lines[1] == ["all", "rows", "4", "4.5", "undefined", "undefined", "undefined"]
    assert lines[2] == ["city=Lima", "2", "3", "undefined", "undefined", "undefined"]
    assert lines[3] == ["city=Oslo", "2", "1.5", "3.0000", "2.4495", "2.0000"]
    text = out.getvalue()
    assert "mean_absolute_error is undefined: " in text
    assert "label 'bought' is missing, invalid or of an unknown class in 1 of 4 eval rows" in text
    assert "(rows 3 of " in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("threshold", "first", "later"),
    [
        ({"max_loss": 0.1}, (True, True), (True, False)),
        ({"lower_bound": 0.7}, (True, False), (True, False)),
        ({"lower_bound": 0.2, "max_loss": 0.1}, (True, True), (True, False)),
    ],
)
def test_max_loss_holds_while_there_is_no_baseline(
    threshold: dict[str, float], first: tuple[bool, bool], later: tuple[bool, bool]
) -> None:
    """Reference: by hand, for an AUC of 0.8 and then 0.6, alone and against a baseline of 0.8.

    TFMA's own check, of the configuration as TFX's Evaluator completes it.
    """
    import tensorflow_model_analysis as tfma
    from tensorflow_model_analysis.evaluators import metrics_validator
    from tensorflow_model_analysis.metrics import metric_types

    config = EvaluationConfig.model_validate(
        {
            "metrics": ["auc"],
            "thresholds": {"auc": threshold},
            "require_better_than_constant": False,
        }
    )
    ours = config.eval_config(label="bought", kind="binary", weight=None)

    mean_label = 0.5

    def verdicts(has_baseline: bool) -> tuple[bool, ...]:
        completed = tfma.utils.update_eval_config_with_defaults(
            ours, has_baseline=has_baseline, rubber_stamp=True
        )
        # Where there is none, TFX's Evaluator blesses nothing.
        assert tfma.metrics.metric_thresholds_from_metrics_specs(
            completed.metrics_specs, eval_config=completed
        )
        candidate = completed.model_specs[0].name
        key = metric_types.MetricKey("auc", model_name=candidate)
        found = []
        for auc in (0.8, 0.6):
            metrics = {
                key: auc,
                metric_types.MetricKey("mean_label", model_name=candidate): mean_label,
                metric_types.MetricKey("calibration_error", model_name=candidate): 0.1,
            }
            if has_baseline:
                metrics |= {
                    key.make_baseline_key("baseline"): 0.8,
                    key.make_diff_key(): auc - 0.8,
                }
            result = metrics_validator.validate_metrics(((), metrics), completed)
            found.append(result.validation_ok)
        return tuple(found)

    assert verdicts(has_baseline=False) == first
    assert verdicts(has_baseline=True) == later
    mean_label = float("nan")  # which a metric on an invalid label need not be
    assert verdicts(has_baseline=False) == (False, False)


@pytest.mark.parametrize(
    ("threshold", "baseline", "fact"),
    [
        ({"lower_bound": 0.5}, {}, "no blessed model yet"),
        ({"lower_bound": 0.5}, {"baseline_model_id": 3}, "no threshold sets max_loss"),
        ({"max_loss": 0.1}, {"baseline_model_id": 3}, ", auc also against the latest blessed"),
    ],
)
def test_the_verdict_names_the_comparison(write: Any, threshold, baseline, fact) -> None:
    config = load_config(write(lambda c: c["evaluation"].update(thresholds={"auc": threshold})))
    blessing = OutputArtifact("blessing", {"blessed": 1, **baseline})
    out = io.StringIO()
    records = {"Evaluator": NodeRecord("Evaluator", {"blessing": [blessing]})}
    verdict.show_verdict(config, records, Console(file=out, width=200))
    assert fact in out.getvalue()
    assert out.getvalue().startswith("blessed: ")


@pytest.mark.parametrize("count", [0, 2])
def test_a_blessing_with_warnings_is_not_green(write: Any, count: int) -> None:
    """The terminal shows each warning, those that the YAML keeps too, and the verdict says so."""
    kept = [{"what": f"f{i} may leak", "column": f"f{i}", "fix": "Check"} for i in range(count)]
    config = load_config(write(lambda c: c.update(warnings=kept)))
    blessing = OutputArtifact("blessing", {"blessed": 1})
    records = {"Evaluator": NodeRecord("Evaluator", {"blessing": [blessing]})}
    out = io.StringIO()
    console = Console(file=out, width=200, force_terminal=True, color_system="standard")
    summary.show_warnings_and_verdict(config, records, Consoles(console, console, console))
    text = out.getvalue()
    assert text.count("may leak. Check.") == count
    assert ("\x1b[1;32mblessed" in text) == (count == 0)
    assert ("blessed with 2 warnings" in text) == (count == 2)


@pytest.mark.parametrize("rows", [1, 29, 30])
def test_metrics_of_few_rows_are_warned_of(
    write: Any, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(run_warnings, "slice_values", lambda uri: [("", {"rows": float(rows)})])
    records = {"Evaluator": NodeRecord("Evaluator", {"evaluation": [OutputArtifact("", {})]})}
    found = run_warnings.run_warnings(load_config(write()), records)
    assert [each.number for each in found] == ([rows] if rows < 30 else [])
    assert all(f"only {rows} row" in str(each) for each in found)


def test_nodes_that_go_on_with_a_warning_write_it_for_the_run(write: Any, tmp_path: Path) -> None:
    violation = {"column": "x", "value": 7.0, "message": "column 'x' has a mean of 7."}
    (tmp_path / "report.json").write_text(json.dumps({"violations": [violation]}))
    model = keras.Sequential([keras.layers.Dense(1)])
    warn_once("Rows cannot be compared.", about=model)
    warn_once("Rows cannot be compared.", about=model)
    write_warnings(str(tmp_path))
    outputs = {"NormalizationValidator": "report", "Trainer": "model_run"}
    records = {
        node: NodeRecord(node, {key: [OutputArtifact(str(tmp_path), {})]})
        for node, key in outputs.items()
    }
    found = run_warnings.run_warnings(load_config(write()), records)
    (limit,) = (each for each in found if each.source == "NormalizationValidator")
    assert (limit.column, limit.number) == ("x", 7.0)
    said = [each.what for each in found if each.source == "Trainer"]
    assert said.count("Rows cannot be compared") == 1  # others may be of this process
