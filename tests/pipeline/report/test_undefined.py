"""AUC where it is defined and where it is not, within TFMA's own evaluation."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow_model_analysis as tfma
from frame_evaluation import evaluate_frame
from rich.console import Console
from sklearn import metrics as reference
from tensorflow_model_analysis.evaluators import metrics_validator
from tensorflow_model_analysis.metrics import metric_types

from pipeline.config.config_file import load_config
from pipeline.config.evaluation import EvaluationConfig
from pipeline.report import slices, summary, verdict
from pipeline.report.records import NodeRecord, OutputArtifact

METRICS = ("auc", "auc_precision_recall", "precision", "recall")


def rows(labels: list[float]) -> pd.DataFrame:
    """Three cities: rows of both classes, of one, and of both of which one class weighs 0."""
    return pd.DataFrame(
        {
            "bought": [*labels, 1.0, 1.0, 0.0, 1.0],
            "prediction": [0.1, 0.7, 0.4, 0.35, 0.8, 0.2, 0.3, 0.9],
            "amount": [1.0, 2.0, 1.0, 0.5, 1.0, 2.0, 1.0, 0.0],
            "city": ["both"] * 4 + ["ones"] * 2 + ["weightless"] * 2,
        }
    )


def test_it_is_that_of_scikit_learn_or_undefined(tmp_path: Path) -> None:
    """Tolerance 1e-3: 10,000 thresholds."""
    frame = rows([0.0, 0.0, 1.0, 1.0])
    evaluation = EvaluationConfig(metrics=METRICS, slices=("city",))
    uri = evaluate_frame(evaluation, frame, tmp_path / "evaluation", weight="amount")
    found = dict(slices.slice_values(uri))
    both = frame[frame.city == "both"]
    expected = reference.roc_auc_score(both.bought, both.prediction, sample_weight=both.amount)
    assert found["city=both"]["auc"] == pytest.approx(expected, abs=1e-3)
    assert 0.0 < found["city=both"]["auc_precision_recall"] < 1.0
    for city in ("ones", "weightless"):
        assert math.isnan(found[f"city={city}"]["auc"])
        assert math.isnan(found[f"city={city}"]["auc_precision_recall"])
    assert found["city=ones"]["recall"] == pytest.approx(1 / 3)
    assert math.isnan(found["city=weightless"]["recall"])
    assert math.isnan(found["city=weightless"]["precision"])


@pytest.mark.parametrize("bounds", [{"lower_bound": 0.0}, {"upper_bound": 1.0}])
def test_no_threshold_holds_for_it(write: Any, tmp_path: Path, bounds: dict[str, float]) -> None:
    """TFMA's own AUC would be 0.0 here, for which each of these bounds holds."""
    config = load_config(write(lambda c: c["evaluation"].update(thresholds={"auc": bounds})))
    frame = rows([1.0] * 4).assign(bought=1.0, amount=1.0)
    uri = evaluate_frame(config.evaluation, frame, tmp_path / "evaluation", weight="amount")
    assert not tfma.load_validation_result(uri).validation_ok
    outputs = {
        "evaluation": [OutputArtifact(uri, {})],
        "blessing": [OutputArtifact("", {"blessed": 0})],
    }
    out = io.StringIO()
    records = {"Evaluator": NodeRecord("Evaluator", outputs)}
    summary.show_metrics(config, records, Console(file=out, width=200))
    verdict.show_verdict(config, records, Console(file=out, width=200))
    shown = out.getvalue()
    assert shown.splitlines()[1].split() == ["all", "rows", "8", "1.0000", "undefined"]
    assert "auc is undefined (as when all labels are of one class)" in shown
    assert np.isnan(slices.slice_values(uri)[0][1]["auc"])


def test_a_metric_without_a_threshold_does_not_decide(tmp_path: Path) -> None:
    """All are undefined of all rows here, and of each slice; the accuracy is 1."""
    evaluation = EvaluationConfig.model_validate(
        {
            "metrics": METRICS,
            "slices": ["city"],
            "thresholds": {"binary_accuracy": {"lower_bound": 0.9}},
            "require_better_than_constant": False,
        }
    )
    frame = rows([0.0] * 4).assign(bought=0.0, prediction=0.1, amount=1.0)
    uri = evaluate_frame(evaluation, frame, tmp_path / "evaluation", weight="amount")
    values = dict(slices.slice_values(uri))[""]
    assert all(math.isnan(values[metric]) for metric in METRICS)
    assert tfma.load_validation_result(uri).validation_ok


def holds(evaluation: dict[str, Any], kind: Any, values: dict[str, float]) -> bool:
    """TFMA's own check of metrics of all rows."""
    config = EvaluationConfig.model_validate(
        {**evaluation, "require_better_than_constant": False}
    ).eval_config(label="bought", kind=kind, weight=None)
    metrics = {metric_types.MetricKey(name): value for name, value in values.items()}
    return metrics_validator.validate_metrics(((), metrics), config).validation_ok


@pytest.mark.parametrize(
    ("thresholds", "expected"),
    [
        ({"mean_absolute_error": {"upper_bound": 1.0}}, True),
        ({"r2": {"lower_bound": -9.0}}, False),
        ({"r2": {"upper_bound": 9.0}}, False),
        ({"mean_absolute_error": {"upper_bound": 1.0}, "r2": {"max_loss": 9.0}}, False),
    ],
)
def test_r2_of_equal_labels_decides_where_it_has_a_threshold(
    thresholds: dict[str, Any], expected: bool
) -> None:
    values = {"mean_absolute_error": 0.5, "r2": math.nan, "mean_label": 3.0}
    assert holds({"thresholds": thresholds}, "regression", values) == expected


@pytest.mark.parametrize("guard", ["mean_label", "calibration_error"])
def test_labels_and_probabilities_have_to_be_numbers(guard: str) -> None:
    """An accuracy takes NaN for the negative class, and holds its bound."""
    evaluation = {"metrics": ["auc"], "thresholds": {"binary_accuracy": {"lower_bound": 0.3}}}
    values = {"binary_accuracy": 0.9, "auc": math.nan, "mean_label": 0.5, "calibration_error": 0.1}
    assert holds(evaluation, "binary", values)
    assert not holds(evaluation, "binary", values | {guard: math.nan})
