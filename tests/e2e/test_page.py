"""The page of the taxi run: its values are those of the artifacts and of the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.config.config import PipelineConfig
from pipeline.page.elements import Chart, Table, Thresholds
from pipeline.page.inputs import RunInputs
from pipeline.page.sections import evaluation, explanation, training
from pipeline.report.records import run_by_id
from pipeline.report.run_record import RunRecord, records_of
from pipeline.report.training_history import history_of

pytestmark = pytest.mark.slow


def inputs_of(record: RunRecord) -> RunInputs:
    config = PipelineConfig.model_validate(record.settings)
    return RunInputs(config, record, run_by_id(config, record.summary["run"]["id"]))


def find(blocks: Any, kind: type, title: str) -> Any:
    """Return the first block of a kind whose title begins so, inside others, too."""
    for block in blocks:
        name = getattr(block, "title", getattr(block, "caption", ""))
        if isinstance(block, kind) and name.startswith(title):
            return block
        found = find(getattr(block, "blocks", ()), kind, title)
        if found is not None:
            return found
    return None


@pytest.fixture(scope="module")
def run(taxi) -> RunInputs:
    return inputs_of(records_of(taxi.folder)[0])


def test_every_section_is_on_the_page(run: RunInputs) -> None:
    text = run.record.page.read_text(encoding="utf-8")
    assert "cannot be made" not in text
    assert all(f'id="{name}"' in text for name in ("training", "evaluation", "explanation"))
    assert len(text) < 5 * 2**20


def test_the_evaluation_is_that_of_the_evaluator_and_of_the_model(run: RunInputs) -> None:
    section = evaluation.section_of(run)
    found, metrics = find(section.blocks, Thresholds, "Threshold"), run.summary["metrics"]
    assert found.rates_at(found.start)["accuracy"] == pytest.approx(
        metrics["binary_accuracy"]["value"], abs=1e-9
    )
    sample: Any = run.sample
    assert sample.total == len(sample.labels) == run.summary["rows"]["eval"]
    hit, y = sample.predictions[:, 0] > 0.5, sample.labels == 1
    counts = ((hit & y).sum(), (~hit & y).sum(), (hit & ~y).sum(), (~hit & ~y).sum())
    assert found.counts_at(found.start) == counts
    roc = find(section.blocks, Chart, "ROC").data
    x, height = np.array(roc["x"]), np.array(roc["y"])
    area = np.sum(np.diff(x) * (height[1:] + height[:-1]) / 2)
    assert area == pytest.approx(metrics["auc"]["value"], abs=1e-3)
    shown = find(section.blocks, Table, "Metrics of").rows
    values = [[cell.value for cell in row.cells[1:]] for row in shown]
    assert values == [[s["rows"], *s["metrics"].values()] for s in run.summary["slices"]]


def test_the_training_is_that_of_the_checkpoint(run: RunInputs) -> None:
    folder: Any = run.artifact(training.NodeName.TRAINER, "model_run")
    history: Any = history_of(Path(folder) / "checkpoints")
    section = training.section_of(run)
    shown = find(section.blocks, Chart, "AUC by epoch").data
    np.testing.assert_allclose(shown["y"], history.logs["val_auc"], rtol=1e-5)
    assert (history.steps, history.epochs, history.stopped) == (400, 10, "epochs")


def test_the_payment_type_changes_the_prediction_most(run: RunInputs) -> None:
    """Nobody who pays in cash tips more than 20 %."""
    section = explanation.section_of(run)
    first = find(section.blocks, Chart, "")
    assert first.title == "payment_type"
    mean = dict(zip(first.data["x"], first.data["y"], strict=True))
    assert mean["Cash"] < 0.02 < 0.3 < mean["Credit Card"]


def test_the_strongest_columns_are_those_of_the_attributions(retrained, taxi) -> None:
    record = next(r for r in records_of(taxi.folder) if r.summary["attributions"])
    section = explanation.section_of(inputs_of(record))
    shown = find(section.blocks, Chart, "Strongest columns").data
    expected = record.summary["attributions"][:20]
    assert shown["y"] == [each["column"] for each in expected]
    np.testing.assert_allclose(shown["x"], [each["mean_absolute"] for each in expected], rtol=1e-5)
