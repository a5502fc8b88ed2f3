"""The sections Evaluation and Explanation against NumPy and the Evaluator's own values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from frame_evaluation import evaluate_frame
from small_export import CITIES, export, score, write_rows

from pipeline.config.config import PipelineConfig
from pipeline.config.evaluation import EvaluationConfig
from pipeline.graph.node_names import NodeName
from pipeline.page.elements import Block, Chart, Section, Table, Text, Thresholds
from pipeline.page.inputs import RunInputs
from pipeline.page.partial_dependence import partial_dependences
from pipeline.page.sampled_rows import MOST_ROWS, NoSample, SampledRows, read_rows
from pipeline.page.sections import evaluation, explanation
from pipeline.report.records import NodeRecord, OutputArtifact
from pipeline.report.run_record import RunRecord, write_record

ROWS = 400


@dataclasses.dataclass(frozen=True)
class Case:
    """A run with a model, rows and an evaluation."""

    run: RunInputs
    area: np.ndarray
    city: np.ndarray
    labels: np.ndarray
    predictions: np.ndarray  # `[rows]` or `[rows, classes]`


def blocks_of(blocks: Any) -> Iterator[Block]:
    """Yield blocks with those inside them."""
    for block in blocks:
        yield block
        yield from blocks_of(getattr(block, "blocks", ()))


def only(section: Section, kind: type, title: str = "") -> Any:
    """Return the one block of a kind whose title begins so."""
    (found,) = (
        each
        for each in blocks_of(section.blocks)
        if isinstance(each, kind)
        and getattr(each, "title", getattr(each, "caption", "")).startswith(title)
    )
    return found


def texts(section: Section) -> str:
    return " ".join(each.text for each in blocks_of(section.blocks) if isinstance(each, Text))


def inputs(
    folder: Path, kind: str, metrics: list[str], nodes: Mapping[str, NodeRecord]
) -> RunInputs:
    config = PipelineConfig.model_validate(
        {
            "name": "houses",
            "data": {"path": str(folder / "rows.csv")},
            "features": {
                "groups": [{"name": "areas", "columns": ["area"], "scale": "z_score"}],
                "label": {"column": "label", "kind": kind},
            },
            "training": {"epochs": 1},
            "evaluation": {"metrics": metrics},
            "output": {"folder": str(folder)},
        }
    )
    summary = {"metrics": {name: {} for name in metrics}, "judged_split": "eval"}
    record: RunRecord = write_record(folder / "runs" / "20260101-000000", config, summary)
    return RunInputs(config, record, nodes)


def artifact(key: str, folder: Path) -> dict[str, list[OutputArtifact]]:
    return {key: [OutputArtifact(str(folder), {})]}


def case(folder: Path, kind: str, metrics: list[str], *, evaluated: bool = True) -> Case:
    """Return a run whose model was evaluated on all rows; the last areas and cities are missing."""
    random = np.random.default_rng(5)
    area = random.normal(size=ROWS).astype(np.float32) * 3
    city = random.choice(CITIES, ROWS, p=[0.5, 0.3, 0.2])
    area[-9:], city[-5:] = np.nan, ""
    p = score(kind, np.nan_to_num(area).astype(float), city)
    if kind == "regression":
        labels = (p + random.standard_t(2, ROWS)).astype(np.float32).astype(float)
    elif kind == "binary":
        labels = (random.uniform(size=ROWS) < p).astype(float)
        labels[city == "Rome"] = 0.0
    else:
        labels = (random.uniform(size=(ROWS, 1)) > p.cumsum(axis=1)).sum(axis=1).astype(float)
    export(kind, folder / "model" / "Format-Serving")
    write_rows(folder / "examples" / "Split-eval", area, city, labels)
    nodes: dict[str, NodeRecord] = {
        NodeName.TRAINER: NodeRecord("Trainer", artifact("model", folder / "model")),
        NodeName.EXAMPLE_GEN: NodeRecord("rows", artifact("examples", folder / "examples")),
    }
    if evaluated:
        shown = p.astype(np.float32)
        frame = pd.DataFrame(
            {
                "bought": labels.astype(int) if kind == "multiclass" else labels,
                "prediction": list(shown) if kind == "multiclass" else shown,
                "city": city,
            }
        )
        config = EvaluationConfig(metrics=tuple(metrics), slices=("city",))
        evaluate_frame(config, frame, folder / "evaluation", kind=kind)  # type: ignore[arg-type]
        evaluated_in = artifact("evaluation", folder / "evaluation")
        nodes[NodeName.EVALUATOR] = NodeRecord("Evaluator", evaluated_in)
    return Case(inputs(folder, kind, metrics, nodes), area, city, labels, p)


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return case(tmp_path_factory.mktemp("binary"), "binary", ["auc", "binary_accuracy"])


@pytest.fixture(scope="module")
def section(binary: Case) -> Section:
    return evaluation.section_of(binary.run)


def test_the_table_has_the_metrics_of_each_slice(binary: Case, section: Section) -> None:
    table = only(section, Table, "Metrics of 4 slices")
    assert [each.name for each in table.columns] == ["slice", "rows", "auc", "binary_accuracy"]
    found = {row.cells[0].text: row for row in table.rows}
    assert list(found) == ["all rows", "city=", *(f"city={each}" for each in CITIES)]
    for name, chosen in (("all rows", binary.city != "-"), ("city=Oslo", binary.city == "Oslo")):
        y, p = binary.labels[chosen], binary.predictions[chosen]
        _, rows, auc, accuracy = found[name].cells
        assert rows.value == chosen.sum()
        assert accuracy.value == pytest.approx(((p > 0.5) == y).mean(), rel=1e-6)
        pairs = p[y == 1][:, None] - p[y == 0]
        assert auc.value == pytest.approx((pairs > 0).mean(), abs=1e-3)


def test_a_slice_of_one_class_says_so(section: Section) -> None:
    (rome,) = (
        row for row in only(section, Table, "Metrics").rows if row.cells[0].text == "city=Rome"
    )
    assert rome.cells[2].text == "undefined"
    assert [each.text for each in rome.details] == ["There are no curves: all rows are negative."]


def test_the_slider_has_the_counts_of_numpy(binary: Case, section: Section) -> None:
    found = only(section, Thresholds)
    y, p = binary.labels, binary.predictions.astype(np.float32).astype(float)
    assert len(found.thresholds) <= 200
    assert found.thresholds[found.start] == 0.5
    for place, threshold in enumerate(found.thresholds):
        hit = p > threshold
        counts = ((y * hit).sum(), (y * ~hit).sum(), ((1 - y) * hit).sum(), ((1 - y) * ~hit).sum())
        assert found.counts_at(place) == counts
    rates = found.rates_at(found.start)
    hit = p > 0.5
    assert rates["precision"] == y[hit].mean()
    assert rates["recall"] == hit[y == 1].mean()
    assert rates["accuracy"] == (hit == y).mean()
    assert rates["false positive rate"] == hit[y == 0].mean()
    assert found.rates_at(len(found.thresholds) - 1)["precision"] is None


def test_the_area_under_the_curve_is_the_evaluators(section: Section) -> None:
    roc = only(section, Chart, "ROC curve")
    x, y = (np.array(roc.data[name]) for name in ("x", "y"))
    area = float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2))
    auc = only(section, Table, "Metrics").rows[0].cells[2].value
    assert area == pytest.approx(auc, abs=1e-3)
    assert {"x", "y", "t", "place"} == set(roc.data)


def test_the_probabilities_of_a_class_add_up_to_one(binary: Case, section: Section) -> None:
    chart = only(section, Chart, "Probabilities of both classes")
    p, y = binary.predictions.astype(np.float32), binary.labels
    edges = np.linspace(0, 1, 21)
    for label, name in ((0, "negative"), (1, "positive")):
        shown = [v for v, s in zip(chart.data["y"], chart.data["series"], strict=True) if s == name]
        # An interval has its upper end: a row at a threshold is not above it.
        counts = np.bincount(np.searchsorted(edges[1:], p[y == label]), minlength=20)
        np.testing.assert_allclose(shown, counts / counts.sum(), atol=1e-6)


def test_partial_dependence_is_a_mean_over_changed_rows(binary: Case) -> None:
    """Reference: the formula of the model in float64, on the first rows of the sample."""
    sample = binary.run.sample
    assert isinstance(sample, SampledRows)
    areas, cities = partial_dependences(sample, ["area", "city"])
    place = sample.rows.schema.get_field_index
    area = np.array([v[0] if v else 0 for v in sample.rows[place("area")].to_pylist()], float)
    city = np.array(
        [v[0].decode() if v else "" for v in sample.rows[place("city")].to_pylist()], object
    )
    assert (len(areas.values), areas.is_number, areas.rows) == (20, True, 400)
    for value, mean in zip(areas.values, areas.means[:, 0], strict=True):
        expected = score("binary", np.full(ROWS, float(value)), city).mean()
        assert mean == pytest.approx(expected, abs=1e-6)
    assert (cities.values, cities.is_number) == (CITIES, False)
    for value, mean in zip(cities.values, cities.means[:, 0], strict=True):
        expected = score("binary", area, np.full(ROWS, value, object)).mean()
        assert mean == pytest.approx(expected, abs=1e-6)


def test_the_columns_that_change_the_prediction_most_come_first(binary: Case) -> None:
    section = explanation.section_of(binary.run)
    charts = [each for each in blocks_of(section.blocks) if isinstance(each, Chart)]
    assert [each.title for each in charts] == ["area", "city"]
    assert "explain: {}" in texts(section)
    assert "over 400 of 400 rows of the eval split" in texts(section)


@pytest.mark.parametrize("change", ["one class", "nan", "old"])
def test_what_has_no_curves_says_why(binary: Case, change: str, monkeypatch: Any) -> None:
    found = evaluation.slices_of

    def changed(uri: str) -> list:
        (key, metrics), *rest = found(uri)
        values = [float(v) for v in metrics["score_histogram"]["arrayValue"]["float64Values"]]
        if change == "one class":
            values[: len(values) // 2] = [0.0] * (len(values) // 2)
        if change == "nan":
            values[3] = float("nan")
        if change == "old":
            values = values[:-1]
        array = {"arrayValue": {"float64Values": values}}
        return [(key, {**metrics, "score_histogram": array, "calibration_bins": {}}), *rest]

    monkeypatch.setattr(evaluation, "slices_of", changed)
    section = evaluation.section_of(binary.run)
    assert not [each for each in section.blocks if isinstance(each, Thresholds)]
    why = {"one class": "all rows are positive", "nan": "not a number", "old": "Run the pipeline"}
    assert why[change] in texts(section)


def test_confidence_intervals_are_shown_where_the_evaluation_has_them(
    binary: Case, monkeypatch: Any
) -> None:
    bounded = {"boundedValue": {"value": 0.75, "lowerBound": 0.7, "upperBound": 0.8}}
    monkeypatch.setattr(evaluation, "slices_of", lambda uri: [((), {"auc": bounded})])
    auc = only(evaluation.section_of(binary.run), Table, "Metrics").rows[0].cells[2]
    assert (auc.text, auc.value) == ("0.7500 (0.7000 to 0.8000)", 0.75)


def test_a_run_without_artifacts_has_sentences(tmp_path: Path) -> None:
    run = inputs(tmp_path, "binary", ["auc"], {})
    assert "no evaluation" in texts(evaluation.section_of(run))
    assert "no exported model or no rows" in texts(explanation.section_of(run))


def test_several_classes_have_a_confusion_matrix(tmp_path: Path) -> None:
    found = case(tmp_path, "multiclass", ["sparse_categorical_accuracy"])
    section = evaluation.section_of(found.run)
    matrix = only(section, Chart, "Confusion matrix").data
    chosen = found.predictions.argmax(axis=1)
    for actual, predicted, rows in zip(matrix["y"], matrix["x"], matrix["n"], strict=True):
        a, p = "abc".index(str(actual)), "abc".index(str(predicted))
        assert rows == ((found.labels == a) & (chosen == p)).sum()
    scores = {row.cells[0].text: row.cells for row in only(section, Table, "Scores of").rows}
    assert scores["a"][4].value == pytest.approx((chosen[found.labels == 0] == 0).mean())
    assert len(only(explanation.section_of(found.run), Chart, "area").data["series"]) == 60


def test_rows_that_are_gone_or_refused_are_reported(tmp_path: Path) -> None:
    found = case(tmp_path, "regression", ["r2"], evaluated=False)
    file = tmp_path / "examples" / "Split-eval" / "part-00000.parquet"
    table = pq.read_table(file)
    twice = pa.array([[1.0, 2.0]] * ROWS, pa.large_list(pa.float32()))
    pq.write_table(table.set_column(0, "area", twice), file)
    assert "cannot predict the sampled rows" in str(found.run.sample)
    file.unlink()
    again = RunInputs(found.run.config, found.run.record, found.run.nodes)
    assert isinstance(again.sample, NoSample)
    assert "no Parquet files" in str(again.sample)


def test_a_large_split_is_sampled_from_all_its_row_groups(tmp_path: Path) -> None:
    count = 3 * MOST_ROWS
    number = np.arange(count, dtype=float)
    write_rows(tmp_path / "s", number, np.array(["Oslo"] * count), number, group=count // 4)
    rows, total = read_rows(tmp_path / "s")
    assert (rows.num_rows, total) == (MOST_ROWS, count)
    found = np.array([value[0] for value in rows[rows.schema.get_field_index("label")].to_pylist()])
    groups = np.bincount((found // (count // 4)).astype(int))
    assert groups.tolist() == [MOST_ROWS // 4] * 4
