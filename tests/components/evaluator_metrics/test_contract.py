"""What holds for every metric of the YAML, over one run of TFMA for each kind of label.

Reference: scikit-learn in float64 on the float32 predictions. Tolerance: 1e-6 relative; for areas
under curves, which TFMA integrates over 10,000 thresholds, see `REFERENCES`.
A new metric needs its reference there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from frame_evaluation import frame_config
from metric_references import REFERENCES, bins_by_hand

from components.evaluator_metrics.better_than_constant import _RULES
from pipeline.config.evaluation import METRICS, WHERE_UNDEFINED, EvaluationConfig
from pipeline.report.metrics import calibration_sentence, read_slices

pytestmark = pytest.mark.slow
ROWS = 240
PARTS = ("noise", "good", "alike")  # slices: without and with a signal, and of equal labels


class Run(NamedTuple):
    """Rows, and what TFMA found of them and of each of `PARTS`."""

    labels: np.ndarray
    predictions: np.ndarray
    weights: np.ndarray
    parts: np.ndarray
    metrics: dict[str, Any]  # slice, "" of all rows -> metric -> value
    folder: str


def _rows(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return labels `[rows]` and predictions `[rows, outputs]`, part by part."""
    random = np.random.default_rng(7)
    signal = np.repeat([0.0, 2.0, 0.0], ROWS // 3)
    alike = np.repeat([False, False, True], ROWS // 3)
    if kind == "regression":
        y = np.where(alike, 3.0, random.normal(size=ROWS) + 10.0)
        p = (signal * (y - 10.0) / 2 + 10.0 * ~alike + random.normal(size=ROWS) / 2)[:, None]
    elif kind == "binary":
        y = np.where(alike, 0.0, random.uniform(size=ROWS) < 0.4)
        score = signal * (2 * y - 1) + random.normal(size=ROWS)
        p = 1 / (1 + np.exp(-np.where(alike, -1.0 - np.abs(score), score)))[:, None]
    else:
        y = np.where(alike, 0.0, random.integers(0, 3, ROWS))
        p = random.dirichlet([0.5, 1.0, 2.0], ROWS)
        p = p + signal[:, None] * np.eye(3)[y.astype(int)]
        p /= p.sum(axis=1, keepdims=True)
    y, p = (values.astype(np.float32).astype(float) for values in (y, p))
    # Far from 0, as seconds since 1970 are: float32 is 128 coarse there. The sum is exact.
    far = 1.7e9 if kind == "regression" else 0.0
    return y + far, p + far


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """`runs(kind)`: every metric of this kind of label; of several classes without weights."""
    import pandas as pd
    import tensorflow_model_analysis as tfma

    found: dict[str, Run] = {}

    def run(kind: Any) -> Run:
        if kind in found:
            return found[kind]
        y, p = _rows(kind)
        is_weighted = kind != "multiclass"
        w = np.random.default_rng(8).integers(0, 3, ROWS) if is_weighted else np.ones(ROWS)
        parts = np.repeat(PARTS, ROWS // 3)
        names = tuple(name for name, metric in METRICS.items() if kind in metric.kinds)
        of_classes = {"calibration_error": {"upper_bound": 0.001}}
        evaluation = EvaluationConfig.model_validate(
            {
                "metrics": names,
                "slices": ["part"],
                "thresholds": {} if kind == "regression" else of_classes,
                "require_better_than_constant": False,
            }
        )
        config = frame_config(evaluation, kind=kind, weight="w" if is_weighted else None)
        if kind == "binary":
            config.metrics_specs[0].metrics.append(tfma.MetricConfig(class_name="Calibration"))
        config.metrics_specs[1].metrics.extend(
            tfma.MetricConfig(
                class_name=METRICS[name].class_name,
                module=METRICS[name].module,
                config=f'"name": "unweighted {name}"{METRICS[name].options}',
            )
            for name in names
            if is_weighted and name != "calibration_error"  # its bins would replace the others
        )
        frame = pd.DataFrame(
            {
                "bought": y.astype(int) if kind == "multiclass" else y,
                "prediction": list(p) if kind == "multiclass" else p[:, 0],
                "w": w.astype(float),
                "part": parts,
            }
        )
        folder = str(tmp_path_factory.mktemp(kind))
        result = tfma.analyze_raw_data(frame, config, output_path=folder)
        metrics = {
            key[0][1] if key else "": values[""][""] for key, values in result.slicing_metrics
        }
        found[kind] = Run(y, p, w, parts, metrics, folder)
        return found[kind]

    return run


def check_metric_contract(name: str, run: Run) -> None:
    """Check a metric's values over all rows and each slice, its direction and where it is NaN."""
    for prefix, weights in (("", run.weights), ("unweighted ", np.ones(ROWS))):
        if prefix + name not in run.metrics[""]:
            continue
        values = {
            part: metrics[prefix + name]["doubleValue"] for part, metrics in run.metrics.items()
        }
        for part in ("", *PARTS[:2]):
            rows = np.isin(run.parts, PARTS if part == "" else part)
            expected = REFERENCES[name].value(
                run.labels[rows], run.predictions[rows], weights[rows]
            )
            assert values[part] == pytest.approx(expected, rel=REFERENCES[name].relative), part
        if name != "calibration_error":  # a constant prediction of the share has none
            assert (values["good"] > values["noise"]) == METRICS[name].higher_is_better
        undefined = name in WHERE_UNDEFINED and name != "calibration_error"
        assert math.isnan(float(values["alike"])) == undefined


@pytest.mark.parametrize("kind", ["regression", "binary", "multiclass"])
def test_metric_contract(kind: str, runs: Callable[[str], Run]) -> None:
    for name, metric in METRICS.items():
        if kind in metric.kinds:
            check_metric_contract(name, runs(kind))
        assert name not in _RULES or _RULES[name].higher_is_better == metric.higher_is_better


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_the_summary_shows_the_calibration(kind: str, runs: Callable[[str], Run]) -> None:
    """Reference: NumPy, and TFMA's own `Calibration`, to 1e-6."""
    import tensorflow_model_analysis as tfma

    run = runs(kind)
    all_rows = read_slices(run.folder)[0]
    expected, error, ratio = bins_by_hand(run.labels, run.predictions, run.weights)
    if kind == "binary":
        assert ratio == pytest.approx(all_rows.values["calibration"], rel=1e-6)
    found = all_rows.bins
    assert np.asarray(found) == pytest.approx(np.asarray(expected), abs=1e-6)
    assert calibration_sentence(found) == (
        f"calibration (mean predicted / observed) {ratio:.4f}, expected calibration error "
        f"{error:.4f}"
    )
    verdict = tfma.load_validation_result(run.folder)
    (failure,) = [f for s in verdict.metric_validations_per_slice for f in s.failures]
    assert failure.metric_key.name == "calibration_error"
