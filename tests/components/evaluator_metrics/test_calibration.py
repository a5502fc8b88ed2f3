"""Calibration against NumPy in float64, merged in any parts, and within TFMA's own evaluation."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from components.evaluator_metrics.calibration import BINS, Bins, bins_of
from pipeline.config.evaluation import EvaluationConfig
from pipeline.report import calibration, slices


def rows(kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, probabilities and weights, the ends 0 and 1 among them."""
    random = np.random.default_rng(6)
    weights = random.integers(0, 3, 211).astype(float)
    if kind == "binary":
        p = np.r_[0.0, 1.0, 0.1, random.beta(0.6, 0.8, 208)][:, None].astype(np.float32)
        return (random.uniform(size=211) < p[:, 0] ** 1.3).astype(float), p, weights
    p = random.dirichlet([0.5, 1.0, 2.0], 211).astype(np.float32)
    return random.integers(0, 3, 211).astype(float), p, weights


def by_hand(labels: np.ndarray, p: np.ndarray, weights: np.ndarray) -> tuple[Any, float, float]:
    """Bins (range, weight, mean probability, share), their error and mean predicted / observed."""
    p = p.astype(float)
    came = labels if p.shape[1] == 1 else labels == p.argmax(1)
    top = p.max(1)
    found, error = [], 0.0
    for i in range(BINS):
        last = i == BINS - 1
        inside = (top * BINS >= i) & ((top * BINS < i + 1) | last) & (weights > 0)
        if inside.any():
            w = weights[inside]
            mean, share = np.average(top[inside], weights=w), np.average(came[inside], weights=w)
            found.append((i / BINS, (i + 1) / BINS, w.sum(), mean, share))
            error += w.sum() / weights.sum() * abs(mean - share)
    return found, error, np.average(top, weights=weights) / np.average(came, weights=weights)


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
@pytest.mark.parametrize("parts", [1, 7, 211])
def test_any_parts_give_that_of_all_rows(kind: str, parts: int) -> None:
    """Reference: NumPy, float64, to 1e-12."""
    pieces = [np.array_split(values, parts) for values in rows(kind)]
    found = [np.stack(bins_of(*piece)) for piece in zip(*pieces, strict=True)]
    assert Bins(*np.sum(found, axis=0)).error == pytest.approx(by_hand(*rows(kind))[1], abs=1e-12)


def test_it_is_not_defined_of_no_rows_or_of_labels_that_are_none() -> None:
    one = np.ones(3)
    assert math.isnan(bins_of(one, one[:, None], one * 0).error)
    assert math.isnan(bins_of(one * math.nan, one[:, None], one).error)
    assert bins_of(np.r_[1.0, math.nan], np.ones((2, 1)), np.r_[1.0, 0.0]).error == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "weighted"), [("binary", True), ("multiclass", False)])
def test_tfma_computes_it_and_the_summary_shows_it(
    kind: Any, weighted: bool, tmp_path: Path
) -> None:
    """Reference: as above, and TFMA's own `Calibration`, to 1e-6."""
    import pandas as pd
    import tensorflow_model_analysis as tfma

    labels, p, weights = rows(kind)
    threshold = {"calibration_error": {"upper_bound": 0.001}}
    evaluation = EvaluationConfig.model_validate({"thresholds": threshold if weighted else {}})
    config = evaluation.eval_config(label="y", kind=kind, weight="w" if weighted else None)
    config.model_specs[0].prediction_key = "p"
    config.model_specs[0].signature_name = ""
    del config.model_specs[0].preprocessing_function_names[:]
    if kind == "binary":
        config.metrics_specs[0].metrics.append(tfma.MetricConfig(class_name="Calibration"))
    frame = pd.DataFrame(
        {
            "y": labels if kind == "binary" else labels.astype(int),
            "p": p[:, 0] if kind == "binary" else list(p),
            "w": weights,
        }
    )
    tfma.analyze_raw_data(frame, config, output_path=str(tmp_path))
    expected, error, ratio = by_hand(labels, p, weights if weighted else np.ones_like(weights))
    ((_, metrics),) = slices.named_slices(str(tmp_path))
    assert metrics["calibration_error"]["doubleValue"] == pytest.approx(error, abs=1e-6)
    if kind == "binary":
        assert ratio == pytest.approx(metrics["calibration"]["doubleValue"], rel=1e-6)
    found = calibration.bins_of(metrics)
    assert np.asarray(found) == pytest.approx(np.asarray(expected), abs=1e-6)
    assert calibration.sentence(found) == (
        f"calibration (mean predicted / observed) {ratio:.4f}, expected calibration error "
        f"{error:.4f}"
    )
    out = io.StringIO()
    console = Console(width=200, file=out)
    console.print(calibration.table_of(found, counted="rows"))
    lines = [line.split() for line in out.getvalue().splitlines()]
    assert lines == [
        ["predicted", *(f"{each[3]:.3f}" for each in expected)],
        ["observed", *(f"{each[4]:.3f}" for each in expected)],
        ["rows", *(f"{each[2]:g}" for each in expected)],
    ]
    if weighted:
        verdict = tfma.load_validation_result(str(tmp_path))
        (failure,) = [f for s in verdict.metric_validations_per_slice for f in s.failures]
        assert failure.metric_key.name == "calibration_error"
