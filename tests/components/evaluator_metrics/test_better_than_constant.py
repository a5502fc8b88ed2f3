"""The comparison with a constant against scikit-learn, and how often noise passes it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from frame_evaluation import evaluate_frame
from metric_references import REFERENCES
from tensorflow_model_analysis.metrics import metric_types

from components.evaluator_metrics.better_than_constant import (
    _MOST_BY_CHANCE,
    _RULES,
    _Combiner,
    _compare,
)
from pipeline.config.evaluation import METRICS, EvaluationConfig
from pipeline.report.metrics import read_slices

ROWS = 300
REGRESSION = ("mean_absolute_error", "mean_squared_error", "root_mean_squared_error", "r2")
BINARY = ("auc", "auc_precision_recall", "binary_accuracy", "binary_crossentropy")
MULTICLASS = ("sparse_categorical_accuracy", "sparse_categorical_crossentropy")


def rows(metric: str, *, signal: float, seed: int = 0) -> tuple[Any, Any, Any]:
    """Labels, predictions that follow them by `signal`, and weights."""
    random = np.random.default_rng(seed)
    weights = random.integers(0, 3, ROWS).astype(float)
    weights[:2] = 1.0
    if metric in REGRESSION:
        labels = random.normal(size=ROWS)
        return labels, (signal * labels + random.normal(size=ROWS))[:, None] / 2, weights
    if metric in BINARY:
        labels = (random.uniform(size=ROWS) < 0.4).astype(float)
        score = 2 * signal * (labels - 0.5) - 0.4 + random.normal(size=ROWS)
        return labels, 1 / (1 + np.exp(-score))[:, None], weights
    labels = random.integers(0, 3, ROWS)
    score = 2 * signal * np.eye(3)[labels] + random.normal(size=(ROWS, 3))
    return labels.astype(float), np.exp(score) / np.exp(score).sum(1, keepdims=True), weights


def expected(metric: str, y: Any, p: Any, w: Any) -> tuple[float, float]:
    """The metric of the model and of the best constant, by scikit-learn."""
    if metric in REGRESSION:
        median = np.median(np.repeat(y, w.astype(int)))
        constant = median if metric == "mean_absolute_error" else np.average(y, weights=w)
        constants = np.full((len(y), 1), constant)
    else:
        shares = np.bincount(y.astype(int), w) / w.sum()
        constants = np.tile(shares if metric in MULTICLASS else shares[1:], (len(y), 1))
    value = REFERENCES[metric].value
    return value(y, p, w), value(y, constants, w)


def test_each_metric_that_a_constant_has_is_known() -> None:
    assert set(_RULES) == {*REGRESSION, *BINARY, *MULTICLASS}
    assert set(METRICS) - set(_RULES) == {"precision", "recall", "calibration_error"}


def test_values_are_those_of_scikit_learn() -> None:
    """Tolerance 1e-9 relative."""
    for metric in _RULES:
        y, p, w = rows(metric, signal=1.0)
        found = _compare(metric, y, p, w)
        assert found[:2] == pytest.approx(expected(metric, y, p, w), rel=1e-9)
        assert found.better == 1.0
        assert found.rows == (w > 0).sum()


def test_noise_passes_as_rarely_as_chance_allows() -> None:
    """Of 200 tables without a signal; 1 % are allowed: 7 or more of 200 has probability 0.5 %."""
    for metric in _RULES:
        passed = [
            _compare(metric, *rows(metric, signal=0.0, seed=seed)).better for seed in range(200)
        ]
        assert sum(passed) <= 200 * _MOST_BY_CHANCE + 4


def test_heavy_tails_neither_pass_noise_nor_fail_a_good_model() -> None:
    for tail in ["cauchy", "pareto"]:
        passed = 0.0
        for seed in range(100):
            random = np.random.default_rng(seed)
            y = random.standard_cauchy(80) if tail == "cauchy" else random.pareto(1.0, 80)
            noise = np.median(y) + 0.1 * random.normal(size=(80, 1))
            passed += _compare("mean_absolute_error", y, noise, np.ones(80)).better
            good = y[:, None] * random.uniform(0.9, 1.1, (80, 1))
            assert _compare("mean_absolute_error", y, good, np.ones(80)).better == 1.0
        assert passed <= 5


def test_a_worse_model_of_the_right_order_is_not_better() -> None:
    y = np.arange(100.0)
    assert _compare("mean_absolute_error", y, y[:, None] + 1e4, np.ones(100)).better == 0.0
    assert _compare("auc", (y > 50).astype(float), -y[:, None], np.ones(100)).better == 0.0


def test_rows_that_decide_nothing() -> None:
    for metric, labels, predictions in [
        ("mean_absolute_error", np.ones(20), np.ones((20, 1))),
        ("auc", np.ones(20), np.linspace(0, 1, 20)[:, None]),
        ("mean_absolute_error", np.r_[math.nan, np.arange(19.0)], np.ones((20, 1))),
        ("mean_absolute_error", np.arange(20.0), np.full((20, 1), math.nan)),
        # Transform's class of a label that is missing or that training does not know.
        ("sparse_categorical_accuracy", np.arange(20.0) % 3 - 1, np.full((20, 2), 0.5)),
        ("sparse_categorical_crossentropy", np.arange(20.0) % 3, np.full((20, 2), 0.5)),
        ("binary_accuracy", np.arange(20.0) % 3, np.linspace(0, 1, 20)[:, None]),
    ]:
        assert math.isnan(_compare(metric, labels, predictions, np.ones(20)).better)


def test_the_order_of_rows_and_of_parts_is_nothing() -> None:
    y, p, w = rows("auc", signal=0.12)
    order = np.random.default_rng(1).permutation(ROWS)
    assert _compare("auc", y, p, w) == _compare("auc", y[order], p[order], w[order])


def test_a_sample_of_many_rows_bounds_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "components.evaluator_metrics.better_than_constant"
    monkeypatch.setattr(f"{module}._MOST_ROWS", 100)
    combiner = _Combiner("auc", metric_types.MetricKey("key"), {})
    labels = np.arange(70) % 2.0
    parts = [
        combiner.add_rows(combiner.create_accumulator(), labels, labels[:, None], np.ones(70))
        for _ in range(9)
    ]
    merged = combiner.merge_accumulators(parts)
    assert merged.rows <= 200
    found = combiner.extract_output(merged)
    assert found[combiner.key] == 1.0
    assert found[combiner.beside][3] == 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "metric", "signal"),
    [
        ("regression", "mean_absolute_error", 1.0),
        ("binary", "auc", 0.0),
        ("multiclass", "sparse_categorical_accuracy", 1.0),
    ],
)
def test_tfma_decides_by_it(kind: Any, metric: str, signal: float, tmp_path: Path) -> None:
    """A threshold that anything reaches does not bless noise."""
    import pandas as pd
    import tensorflow_model_analysis as tfma

    y, p, w = rows(metric, signal=signal)
    any_value = {"upper_bound": 1e9} if kind == "regression" else {"lower_bound": 0.0}
    for required in (None,) if signal else (None, False):
        evaluation = EvaluationConfig.model_validate(
            {"thresholds": {metric: any_value}, "require_better_than_constant": required}
        )
        frame = pd.DataFrame({"bought": y, "prediction": p[:, 0], "w": w})
        if kind == "multiclass":
            frame = frame.assign(bought=y.astype(int), prediction=list(p))
        folder = evaluate_frame(evaluation, frame, tmp_path / str(required), kind=kind, weight="w")
        ok = tfma.load_validation_result(folder).validation_ok
        assert ok == (signal > 0 or required is False)
    found = read_slices(str(tmp_path / "None"))[0].against_constant
    assert found is not None
    wanted = _compare(metric, y, np.asarray(p, np.float32).astype(float), w)
    assert tuple(found) == pytest.approx(tuple(wanted), rel=1e-6)
