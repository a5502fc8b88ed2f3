"""Metrics of slices against NumPy and scikit-learn, and where they are undefined."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from frame_evaluation import evaluate_frame
from run_inputs import slice_of
from sklearn import metrics as reference
from tensorflow_model_analysis.evaluators import metrics_validator
from tensorflow_model_analysis.metrics import metric_types

from pipeline.config.evaluation import EvaluationConfig
from pipeline.report.metrics import (
    LARGEST_CLASS,
    Comparison,
    class_scores,
    constant_refusal,
    read_slices,
)

METRICS = ("auc", "auc_precision_recall", "precision", "recall")
ENTRIES = [
    {"numWeightedExamples": 6.0},
    {"predictedClassId": 1, "numWeightedExamples": 2.0},
    {"actualClassId": 1, "numWeightedExamples": 1.0},
    {"actualClassId": 1, "predictedClassId": 1, "numWeightedExamples": 3.0},
    {"actualClassId": 2, "predictedClassId": 1, "numWeightedExamples": 1.0},
    {"actualClassId": 2, "predictedClassId": 2},
]


def test_what_tfma_writes_is_a_matrix() -> None:
    raw = {"multiClassConfusionMatrixAtThresholds": {"matrices": [{"entries": ENTRIES}]}}
    found = slice_of((("city", "Oslo"), ("paid", 1)), {"confusion_matrix": raw}, auc=0.5)
    assert found.matrix == {(0, 0): 6.0, (0, 1): 2.0, (1, 0): 1.0, (1, 1): 3.0, (2, 1): 1.0}
    assert (found.name, found.values) == ("city=Oslo, paid=1", {"auc": 0.5, LARGEST_CLASS: 8 / 13})
    empty = slice_of()
    assert (empty.matrix, empty.values, empty.bins, empty.counts) == ({}, {}, [], None)


def test_scores_of_classes_are_those_of_the_rows() -> None:
    """Reference: counted in NumPy; exact."""
    random = np.random.default_rng(4)
    actual, predicted = random.integers(0, 4, 300), random.integers(0, 3, 300)
    matrix: dict[tuple[int, int], float] = {}
    for pair in zip(actual.tolist(), predicted.tolist(), strict=True):
        matrix[pair] = matrix.get(pair, 0.0) + 1.0
    found = class_scores(matrix)
    assert [found[c].rows for c in found] == sorted((found[c].rows for c in found), reverse=True)
    for each, row in found.items():
        right = ((actual == each) & (predicted == each)).sum()
        assert row.rows == (actual == each).sum()
        assert row.share == (actual == each).mean()
        assert row.recall == right / (actual == each).sum()
        if each == 3:  # never predicted
            assert math.isnan(row.precision)
        else:
            assert row.precision == right / (predicted == each).sum()


@pytest.mark.parametrize(
    ("comparison", "words"),
    [
        (Comparison(0.6, 0.5, 0.04, 50), "0.6, and 0.5 for the best constant on the same 50 rows: "
         "chance can explain that, as 4.0% of random orders"),
        (Comparison(0.4, 0.5, 1.0, 50), "the model is not better than a constant: auc is 0.4"),
        (None, "was not compared with a constant by auc"),
    ],
)  # fmt: skip
def test_a_refusal_names_chance_where_that_can_explain_the_difference(
    comparison: Comparison | None, words: str
) -> None:
    assert words in constant_refusal(comparison, "auc")


@pytest.mark.parametrize(
    ("metric", "constant", "shown"),
    [("auc", 0.5, "> 0.5"), ("mean_absolute_error", 8.25, "< 8.25"), ("auc", math.nan, "")],
)
def test_the_bound_of_a_constant(metric: str, constant: float, shown: str) -> None:
    assert Comparison(1.0, constant, 1.0, 50).bound(metric) == shown


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


def test_the_auc_is_that_of_scikit_learn_or_undefined(tmp_path: Path) -> None:
    """Tolerance 1e-3: 10,000 thresholds."""
    frame = rows([0.0, 0.0, 1.0, 1.0])
    evaluation = EvaluationConfig(metrics=METRICS, slices=("city",))
    uri = evaluate_frame(evaluation, frame, tmp_path / "evaluation", weight="amount")
    slices = {each.name: each.values for each in read_slices(uri)}
    assert next(iter(slices)) == ""
    both = frame[frame.city == "both"]
    expected = reference.roc_auc_score(both.bought, both.prediction, sample_weight=both.amount)
    assert slices["city=both"]["auc"] == pytest.approx(expected, abs=1e-3)
    assert 0.0 < slices["city=both"]["auc_precision_recall"] < 1.0
    for city in ("ones", "weightless"):
        assert math.isnan(slices[f"city={city}"]["auc"])
        assert math.isnan(slices[f"city={city}"]["auc_precision_recall"])
    assert slices["city=ones"]["recall"] == pytest.approx(1 / 3)
    assert math.isnan(slices["city=weightless"]["recall"])
    assert math.isnan(slices["city=weightless"]["precision"])


BINARY = {"metrics": ["auc"], "thresholds": {"binary_accuracy": {"lower_bound": 0.3}}}
NUMBERS = {"binary_accuracy": 0.9, "auc": math.nan, "mean_label": 0.5, "calibration_error": 0.1}
EQUAL = {"mean_absolute_error": 0.5, "r2": math.nan, "mean_label": 3.0}
ERROR = {"mean_absolute_error": {"upper_bound": 1.0}}


@pytest.mark.parametrize(
    ("kind", "evaluation", "values", "holds"),
    [
        ("regression", {"thresholds": ERROR}, EQUAL, True),
        ("regression", {"thresholds": {"r2": {"lower_bound": -9.0}}}, EQUAL, False),
        ("regression", {"thresholds": {**ERROR, "r2": {"max_loss": 9.0}}}, EQUAL, False),
        # An accuracy takes NaN for the negative class, and holds its bound.
        ("binary", BINARY, NUMBERS, True),
        ("binary", BINARY, NUMBERS | {"mean_label": math.nan}, False),
    ],
)
def test_an_undefined_metric_decides_where_it_has_a_threshold(
    kind: Any, evaluation: dict[str, Any], values: dict[str, float], holds: bool
) -> None:
    """By TFMA's own check of metrics of all rows."""
    config = EvaluationConfig.model_validate(
        {**evaluation, "require_better_than_constant": False}
    ).eval_config(label="bought", kind=kind, weight=None)
    metrics = {metric_types.MetricKey(name): value for name, value in values.items()}
    assert metrics_validator.validate_metrics(((), metrics), config).validation_ok == holds
