"""The section Evaluation against NumPy and the Evaluator's own values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from frame_evaluation import evaluate_frame
from run_inputs import blocks_of, page_run, slice_of, texts_of
from run_records import SETTINGS, SUMMARY_OF_A_RUN, write

from pipeline.config.evaluation import EvaluationConfig
from pipeline.page import evaluation
from pipeline.page.elements import Chart, PageRun, Section, Text, Thresholds
from pipeline.page.page import page_run as compared
from pipeline.report.metrics import SliceMetrics
from pipeline.report.result import RunResult
from pipeline.report.tables import Table
from trainer_module.baselines.record import Baseline, Baselines

ROWS = 400
CITIES = ["Lima", "Oslo", "Rome"]


def settings(kind: str, metrics: list[str], **more: Any) -> dict[str, Any]:
    label = {"column": "bought", "kind": kind}
    return {
        "features": {**SETTINGS["features"], "label": label},
        "evaluation": {"metrics": metrics, **more},
    }


def run_of(folder: Path, kind: str, metrics: list[str], predictions: Any, labels: Any) -> PageRun:
    """Return a run whose model was evaluated on rows of cities in turn."""
    frame = pd.DataFrame({"bought": labels, "prediction": list(predictions), "city": CITY})
    config = EvaluationConfig(metrics=tuple(metrics), slices=("city",))
    evaluate_frame(config, frame, folder / "evaluation", kind=kind)  # type: ignore[arg-type]
    (folder / "Format-Serving" / "assets.extra").mkdir(parents=True)
    names = json.dumps({"classes": ["a", "b", "c"]})
    (folder / "Format-Serving" / "assets.extra" / "label.json").write_text(names)
    artifacts = {("Evaluator", "evaluation"): folder / "evaluation", ("Trainer", "model"): folder}
    return page_run(folder / "out", artifacts, settings=settings(kind, metrics))


CITY = np.resize(CITIES, ROWS)
PREDICTIONS = np.random.default_rng(5).uniform(size=ROWS).astype(np.float32)
LABELS = (np.random.default_rng(6).uniform(size=ROWS) < PREDICTIONS) * (CITY != "Rome") * 1.0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> PageRun:
    folder = tmp_path_factory.mktemp("binary")
    return run_of(folder, "binary", ["auc", "binary_accuracy"], PREDICTIONS, LABELS)


@pytest.fixture(scope="module")
def section(run: PageRun) -> Section:
    return evaluation.section_of(run)


def test_the_table_has_the_metrics_of_each_slice(section: Section) -> None:
    (table,) = blocks_of(section.blocks, Table, "Metrics of 3 slices")
    names = ["slice", "rows", "mean label", "auc", "binary_accuracy"]
    assert [each.name for each in table.columns] == names
    rows = {row.cells[0].text: row for row in table.rows}
    assert list(rows) == ["all rows", *(f"city={each}" for each in CITIES)]
    for name, chosen in (("all rows", CITY != "-"), ("city=Oslo", CITY == "Oslo")):
        y, p = LABELS[chosen], PREDICTIONS[chosen]
        _, count, mean, auc, accuracy = rows[name].cells
        assert mean.value == pytest.approx(y.mean(), rel=1e-6)
        assert count.value == chosen.sum()
        assert accuracy.value == pytest.approx(((p > 0.5) == y).mean(), rel=1e-6)
        pairs = p[y == 1][:, None] - p[y == 0]
        assert auc.value == pytest.approx((pairs > 0).mean(), abs=1e-3)
    assert rows["city=Rome"].cells[3].text == "undefined"


def test_the_slider_has_the_counts_of_numpy(section: Section) -> None:
    (slider,) = blocks_of(section.blocks, Thresholds)
    y, p = LABELS, PREDICTIONS.astype(float)
    assert len(slider.thresholds) <= 200
    assert slider.thresholds[slider.start] == 0.5
    for place, threshold in enumerate(slider.thresholds):
        hit = p > threshold
        counts = ((y * hit).sum(), (y * ~hit).sum(), ((1 - y) * hit).sum(), ((1 - y) * ~hit).sum())
        assert slider.counts_at(place) == counts
    rates = slider.rates_at(slider.start)
    hit = p > 0.5
    assert rates["precision"] == y[hit].mean()
    assert rates["recall"] == hit[y == 1].mean()
    assert rates["accuracy"] == (hit == y).mean()
    assert rates["false positive rate"] == hit[y == 0].mean()
    assert slider.rates_at(len(slider.thresholds) - 1)["precision"] is None


def test_what_has_no_curves_says_why(run: PageRun) -> None:
    first, *rest = run.result.slices
    values = first._array("score_histogram")
    values[: len(values) // 2] = [0.0] * (len(values) // 2)
    histogram = {"arrayValue": {"float64Values": values}}
    raw = {**first.raw, "score_histogram": histogram, "calibration_bins": {}}
    result = RunResult(run.result.config, run.result.nodes)
    result.__dict__["slices"] = (SliceMetrics((), raw), *rest)
    section = evaluation.section_of(PageRun(run.record, result))
    assert not blocks_of(section.blocks, Thresholds)
    assert "all rows are positive" in blocks_of(section.blocks, Text)[0].text


def test_several_classes_have_a_confusion_matrix(tmp_path: Path) -> None:
    predictions = np.random.default_rng(7).dirichlet([1.0, 1.0, 1.0], ROWS).astype(np.float32)
    labels = np.random.default_rng(8).integers(0, 3, ROWS)
    metrics = ["sparse_categorical_accuracy"]
    section = evaluation.section_of(run_of(tmp_path, "multiclass", metrics, predictions, labels))
    (matrix,) = blocks_of(section.blocks, Chart, "Confusion matrix")
    chosen = predictions.argmax(axis=1)
    columns = (matrix.data[name] for name in "yxn")
    for actual, predicted, rows in zip(*columns, strict=True):
        a, p = "abc".index(actual), "abc".index(predicted)
        assert rows == ((labels == a) & (chosen == p)).sum()
    (table,) = blocks_of(section.blocks, Table, "Scores of")
    scores = {row.cells[0].text: row.cells for row in table.rows}
    assert scores["a"][4].value == pytest.approx((chosen[labels == 0] == 0).mean())
    for place, name in enumerate(["as a", "as b", "as c"]):
        at = [column.name for column in table.columns].index(name)
        assert scores["a"][at].value == ((labels == 0) & (chosen == place)).sum()


def test_models_and_bounds_stand_beside_the_baselines(tmp_path: Path) -> None:
    """The bounds are those of the terminal."""
    first = {name: {**each, "value": 2.75} for name, each in SUMMARY_OF_A_RUN["metrics"].items()}
    write(tmp_path, "20260130-100000", metrics=first)
    thresholds = {"mean_absolute_error": {"upper_bound": 3.0, "max_loss": 0.5}}
    more = settings("regression", ["mean_absolute_error"], thresholds=thresholds)
    record = write(tmp_path, "20260131-100000", settings=more)
    run = compared(record, RunResult(record.config, {}))
    compare = {"arrayValue": {"float64Values": [2.5, 4.0, 1.0, 60.0]}}
    all_rows = slice_of((), {"against_constant": compare}, rows=29.0, mean_absolute_error=2.5)
    constant = Baseline("constant", "always 12", {"mean_absolute_error": 4.0})
    run.result.__dict__["slices"] = (all_rows,)
    run.result.__dict__["measured_baselines"] = Baselines(10, 60, (constant,), "")
    beside, metrics = blocks_of(evaluation.section_of(run).blocks, Table)
    assert [[cell.text for cell in row.cells] for row in beside.rows] == [
        ["this model", "2.5000"],
        ["last blessed model (20260130-100000)", "2.7500"],
        ["a constant", "4.0000"],
        ["needed on all rows", "< 4, ≤ 3, +0.5 of baseline"],
    ]
    assert texts_of(metrics)["all rows"]["mean_absolute_error"] == "2.5000"
    assert "fewer than 30" in metrics.rows[0].cells[1].note
    assert run.result.needed("mean_absolute_error") == beside.rows[-1].cells[1].text
    without = evaluation.section_of(page_run(tmp_path / "none", {}, slices=[]))
    assert "no evaluation" in blocks_of(without.blocks, Text)[0].text
