"""The page of the taxi run: its values are those of the artifacts and of the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_inputs import blocks_of

from pipeline.graph.node_names import NodeName
from pipeline.page import answers, evaluation, training
from pipeline.page.elements import Chart, PageRun, Text, Thresholds
from pipeline.page.page import page_run
from pipeline.report.run_record import records_of
from pipeline.report.tables import Table

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(taxi) -> PageRun:
    return page_run(records_of(taxi.folder)[0])


def test_every_section_is_on_the_page(run: PageRun) -> None:
    text = run.record.page.read_text(encoding="utf-8")
    assert "cannot be made" not in text
    places = [text.index(f'<section id="{name}"') for name in ("verdict", "why", "trust", "run")]
    assert places == sorted(places)
    assert len(text) < 5 * 2**20


def test_the_first_screen_says_how_far_the_model_is_from_the_baselines(run: PageRun) -> None:
    metrics = run.summary["metrics"]
    (text,) = blocks_of(answers.is_it_good(run).blocks, Text)
    assert f"auc is {metrics['auc']['value']:.4f}: " in text.text
    for words in ("better than a constant (0.5000)", "better than a linear model (0."):
        assert words in text.text


def test_the_evaluation_is_that_of_the_evaluator(run: PageRun) -> None:
    blocks, metrics = evaluation.section_of(run).blocks, run.summary["metrics"]
    (slider,) = blocks_of(blocks, Thresholds)
    accuracy = slider.rates_at(slider.start)["accuracy"]
    assert accuracy == pytest.approx(metrics["binary_accuracy"]["value"], abs=1e-9)
    assert slider.positives + slider.negatives == run.summary["rows"]["eval"]
    roc = blocks_of(blocks, Chart, "ROC")[0].data
    x, height = np.array(roc["x"]), np.array(roc["y"])
    area = np.sum(np.diff(x) * (height[1:] + height[:-1]) / 2)
    assert area == pytest.approx(metrics["auc"]["value"], abs=1e-3)
    (table,) = blocks_of(blocks, Table, "Metrics of")
    values = [[row.cells[1].value, *(cell.value for cell in row.cells[3:])] for row in table.rows]
    assert values == [[s["rows"], *s["metrics"].values()] for s in run.summary["slices"]]


def test_the_training_is_that_of_the_checkpoint(run: PageRun) -> None:
    folder: Any = run.result.folder(NodeName.TRAINER, "model_run")
    history: Any = training.history_of(Path(folder) / "checkpoints")
    (chart,) = blocks_of(training.section_of(run).blocks, Chart, "AUC by epoch")
    np.testing.assert_allclose(chart.data["y"], history.logs["val_auc"], rtol=1e-5)
    assert (history.steps, history.epochs, history.stopped) == (400, 10, "epochs")


def test_the_payment_type_changes_the_prediction_most(run: PageRun) -> None:
    """Nobody who pays in cash tips more than 20 %."""
    (chart,) = blocks_of(answers.why(run).blocks, Chart)
    assert chart.data["y"][0] == "payment_type"


def test_the_strongest_columns_are_those_of_the_attributions(retrained, taxi) -> None:
    record = next(r for r in records_of(taxi.folder) if r.summary["attributions"])
    (chart,) = blocks_of(answers.why(page_run(record)).blocks, Chart, "Strongest columns")
    expected = record.summary["attributions"][:10]
    assert chart.data["y"] == [each["column"] for each in expected]
    sizes = [each["mean_absolute"] for each in expected]
    np.testing.assert_allclose(chart.data["x"], sizes, rtol=1e-5)
