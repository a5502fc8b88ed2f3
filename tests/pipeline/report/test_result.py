"""What a run found: the verdict and its reasons, warnings, baselines, trials."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow_model_analysis as tfma
from frame_evaluation import evaluate_frame
from run_inputs import lines_of, result_of

from pipeline.config.config_file import load_config
from pipeline.config.evaluation import EvaluationConfig
from pipeline.report import summary
from pipeline.report.result import RunResult
from pipeline.report.summary import _first
from pipeline.report.tables import print_table
from trainer_module.checks.warn_once import warn_once, write_warnings

BLESSING, EVALUATION = ("Evaluator", "blessing"), ("Evaluator", "evaluation")
MODEL_RUN = ("Trainer", "model_run")


def judged(write: Any, evaluation: dict[str, Any], properties: dict[str, int]) -> RunResult:
    config = load_config(write(lambda c: c["evaluation"].update(evaluation)))
    return result_of(config, {BLESSING: properties})


def test_without_a_threshold_the_reason_is_that(write: Any) -> None:
    """As TFX's Evaluator leaves its outputs then: nothing validated, no `blessed` property."""
    verdict = judged(write, {}, {}).verdict
    reason = (
        "evaluation.thresholds is empty, and TFX's Evaluator blesses no model without one: "
        "give a lower_bound, an upper_bound or a max_loss for a metric, such as auc, or set "
        "evaluation.require_better_than_constant: true"
    )
    assert verdict == ("not judged", [reason])
    assert result_of(load_config(write()), {}).verdict is None


@pytest.mark.parametrize(
    ("threshold", "properties", "words"),
    [
        ({"lower_bound": 0.5}, {}, "there was no blessed model yet"),
        ({"lower_bound": 0.5}, {"baseline_model_id": 3}, "no threshold sets max_loss"),
        ({"max_loss": 0.1}, {"baseline_model_id": 3}, ", auc also against the latest blessed"),
    ],
)
def test_the_verdict_names_the_comparison(
    write: Any, threshold: Any, properties: Any, words: str
) -> None:
    run = judged(write, {"thresholds": {"auc": threshold}}, {"blessed": 1, **properties})
    assert run.verdict == ("blessed", [])
    assert run.compared_with_blessed == bool(properties)
    (line,) = lines_of(summary.show_verdict, run)
    assert line[0] == "blessed:"
    assert words in " ".join(line)


@pytest.mark.slow
def test_rows_weights_and_labels_that_are_undefined(write: Any, tmp_path: Path) -> None:
    """Reference: by hand, of four rows that weigh 0.5, 2, 1, 1; one label is infinite."""
    import pandas as pd

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
    rows = pd.DataFrame(
        {
            "bought": [1.0, 2.0, float("inf"), 4.0],
            "prediction": [1.0, 1.0, 1.0, 1.0],
            "amount": [0.5, 2.0, 1.0, 1.0],
            "city": ["Oslo", "Lima", "Lima", "Oslo"],
        }
    )
    folder = tmp_path / "evaluation"
    uri = evaluate_frame(config.evaluation, rows, folder, kind="regression", weight="amount")
    run = result_of(config, {EVALUATION: uri, BLESSING: {"blessed": 0}})
    lines = lines_of(summary.show_metrics, run)
    assert lines[0][:5] == ["slice", "rows", "weights", "mean", "label"]
    assert lines[1] == ["all", "rows", "4", "4.5", "undefined", "undefined", "undefined"]
    assert lines[2] == ["city=Lima", "2", "3", "undefined", "undefined", "undefined"]
    assert lines[3] == ["city=Oslo", "2", "1.5", "3.0000", "2.4495", "2.0000"]
    assert run.verdict is not None
    reasons = " ".join(run.verdict[1])
    assert "mean_absolute_error is undefined: " in reasons
    assert "or a label or prediction is not a number" in reasons


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
    from tensorflow_model_analysis.evaluators import metrics_validator
    from tensorflow_model_analysis.metrics.metric_types import MetricKey

    config = EvaluationConfig.model_validate(
        {
            "metrics": ["auc"],
            "thresholds": {"auc": threshold},
            "require_better_than_constant": False,
        }
    )
    ours = config.eval_config(label="bought", kind="binary", weight=None)

    def verdicts(*, has_baseline: bool, mean_label: float = 0.5) -> tuple[bool, ...]:
        completed = tfma.utils.update_eval_config_with_defaults(
            ours, has_baseline=has_baseline, rubber_stamp=True
        )
        # Where there is none, TFX's Evaluator blesses nothing.
        assert tfma.metrics.metric_thresholds_from_metrics_specs(
            completed.metrics_specs, eval_config=completed
        )
        candidate = completed.model_specs[0].name
        key = MetricKey("auc", model_name=candidate)
        holds = []
        for auc in (0.8, 0.6):
            metrics = {
                key: auc,
                MetricKey("mean_label", model_name=candidate): mean_label,
                MetricKey("calibration_error", model_name=candidate): 0.1,
            }
            if has_baseline:
                metrics |= {key.make_baseline_key("baseline"): 0.8, key.make_diff_key(): auc - 0.8}
            result = metrics_validator.validate_metrics(((), metrics), completed)
            holds.append(result.validation_ok)
        return tuple(holds)

    assert verdicts(has_baseline=False) == first
    assert verdicts(has_baseline=True) == later
    # Which a metric on an invalid label need not be.
    assert verdicts(has_baseline=False, mean_label=float("nan")) == (False, False)


def test_nodes_that_go_on_with_a_warning_write_it_for_the_run(write: Any, tmp_path: Path) -> None:
    violation = {"column": "x", "value": 7.0, "message": "column 'x' has a mean of 7."}
    (tmp_path / "report.json").write_text(json.dumps({"violations": [violation]}))
    model = keras.Sequential([keras.layers.Dense(1)])
    warn_once("Rows cannot be compared.", about=model)
    warn_once("Rows cannot be compared.", about=model)
    write_warnings(str(tmp_path))
    config = load_config(write(lambda c: c.update(warnings=[{"what": "f may leak", "fix": "No"}])))
    artifacts = {("NormalizationValidator", "report"): tmp_path, MODEL_RUN: tmp_path}
    sources = [each.source for each in result_of(config, artifacts).warnings]
    assert sources[1] == "NormalizationValidator"
    said = [each.what for each in result_of(config, artifacts).warnings]
    assert said[0] == "f may leak"
    assert said.count("Rows cannot be compared") == 1  # others may be of this process


def test_trials_are_shown_best_first(write: Any, tmp_path: Path) -> None:
    search = {"optimizer.learning_rate": {"min": 1e-4, "max": 0.1}}
    config = load_config(write(lambda c: c.update(tuning={"search": search, "objective": "auc"})))
    values = {"score": 0.91, "optimizer.learning_rate": 0.0123456}
    trials = [{"trial_id": f"{number:02}", **values} for number in (3, *range(12))]
    (tmp_path / "tuner_results.json").write_text(json.dumps(trials))
    run = result_of(config, {("Tuner", "tuner_results"): tmp_path})
    lines = lines_of(
        lambda console: print_table(console, _first(summary.trials_table(run), 10, ""))
    )
    assert lines[0] == ["trial", "auc", "optimizer.learning_rate"]
    assert lines[1] == ["4", "0.9100", "0.01235"]
    assert len(lines) == 12
    assert lines[-1] == ["and", "3", "more"]
    assert result_of(config, {}).trials == []
