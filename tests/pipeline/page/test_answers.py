"""The first screen of a page: the verdict, the strongest columns, the warnings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from run_inputs import blocks_of, page_run
from run_records import SUMMARY_OF_A_RUN, failed, write
from small_export import CITIES, export, score, write_rows

from components.input_gradients.summary import SUMMARY_JSON, AttributionSummary
from pipeline.page.answers import can_i_trust_it, is_it_good, why
from pipeline.page.elements import Chart, Items, Text, Tile
from pipeline.page.importance import MOST_ROWS, importances_of, read_rows
from pipeline.page.page import page_run as compared
from pipeline.report.result import RunResult
from pipeline.report.tables import Table

ROWS = 400


def test_it_is_good_by_a_distance(tmp_path: Path) -> None:
    first = {name: {**each, "value": 2.75} for name, each in SUMMARY_OF_A_RUN["metrics"].items()}
    write(tmp_path, "20260130-100000", metrics=first)
    record = write(tmp_path, "20260131-100000")
    text, tiles = is_it_good(compared(record, RunResult(record.config, {}))).blocks
    sentence = "mean_absolute_error is 2.5000: 1.5000 better than a constant (4.0000)."
    assert text == Text(f"Every threshold holds. {sentence}", "good")
    assert tiles.tiles == [  # pyright: ignore[reportAttributeAccessIssue]
        Tile("mean absolute error", "2.5000", "-0.25 since the last blessed model", "good"),
        Tile("evaluated rows", "60", "split eval"),
    ]
    against = {"metric": "mean_absolute_error", "constant": 4.0, "chance": 0.04}
    verdict = {"result": "not blessed", "reasons": ["too slow"], "against_constant": against}
    blocks = is_it_good(page_run(tmp_path / "refused", {}, verdict=verdict)).blocks
    chance = ", reached by 4.0% of random orders of the predictions."
    assert blocks[:2] == [
        Items(["not blessed: too slow"], "bad"),
        Text(sentence.removesuffix(".") + chance),
    ]


def test_a_run_that_failed_or_was_interrupted_says_where_and_why(tmp_path: Path) -> None:
    run = page_run(tmp_path / "1", {}, **failed("Transform", "column 'x' <b>is</b> gone"))
    assert is_it_good(run).blocks == [Text("Transform failed: column 'x' <b>is</b> gone", "bad")]
    fields = failed("Trainer", "Interrupted in Trainer.")
    fields["run"]["result"] = "interrupted"
    blocks = is_it_good(page_run(tmp_path / "2", {}, **fields)).blocks
    assert blocks == [Text("Interrupted in Trainer.", "warning")]


def test_warnings_answer_whether_to_trust_it(tmp_path: Path) -> None:
    leak = {"what": "column 'f7' alone explains 91.5% of the label", "fix": "Check it"}
    warnings = [{**leak, "column": "f7", "number": 0.915, "source": "Evaluator"}]
    run = page_run(tmp_path / "1", {}, warnings=warnings)
    texts = [f"{leak['what']}. {leak['fix']}."]
    assert can_i_trust_it(run).blocks == [Items(texts, "warning")]
    (text,) = blocks_of(is_it_good(run).blocks, Text)
    assert text.state == "warning"
    assert text.text.startswith("Every threshold holds, with 1 warning. mean_absolute_error")
    assert can_i_trust_it(page_run(tmp_path / "2", {})).blocks == [Text("No warning.", "good")]


def test_the_strongest_columns_are_those_of_the_attributions(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(12)]
    summary = AttributionSummary(
        split="eval",
        rows=60,
        steps=8,
        mean_prediction=2.5,
        mean_absolute={name: i + 1.0 for i, name in enumerate(names)},
        mean={name: -1.0 * i for i, name in enumerate(names)},
        mean_baseline_prediction=0.0,
        mean_absolute_change=0.0,
        mean_absolute_completeness_error=0.0,
    )
    (tmp_path / SUMMARY_JSON).write_text(summary.model_dump_json())
    section = why(page_run(tmp_path / "out", {("InputGradients", "attributions"): tmp_path}))
    (chart,) = blocks_of(section.blocks, Chart)
    assert chart.data == {"y": names[:1:-1], "x": list(range(12, 2, -1))}
    (table,) = blocks_of(section.blocks, Table)
    assert [cell.text for cell in table.rows[0].cells] == ["c11", "12", "-11"]
    assert len(table.rows) == 12


def measured_run(folder: Path, kind: str) -> tuple[np.ndarray, np.ndarray, object]:
    """Return areas, cities, and the run of a model that was evaluated on them."""
    random = np.random.default_rng(5)
    area = random.normal(size=ROWS).astype(np.float32) * 3
    city = random.choice(CITIES, ROWS, p=[0.5, 0.3, 0.2])
    export(kind, folder / "model" / "Format-Serving")
    write_rows(folder / "examples" / "Split-eval", area, city, np.zeros(ROWS))
    artifacts = {
        ("Trainer", "model"): folder / "model",
        ("ArrowExampleGen", "examples"): folder / "examples",
    }
    return area, city, page_run(folder / "out", artifacts)


def test_without_attributions_columns_are_shuffled(tmp_path: Path) -> None:
    """Reference: the formula of the model in float64, with the same rows in place of each."""
    area, city, run = measured_run(tmp_path, "binary")
    section = why(run)  # pyright: ignore[reportArgumentType]
    other = np.roll(np.random.default_rng(0).permutation(ROWS), 1)
    before = score("binary", area.astype(float), city)
    expected = {
        "area": np.abs(score("binary", area[other].astype(float), city) - before).mean(),
        "city": np.abs(score("binary", area.astype(float), city[other]) - before).mean(),
    }
    (table,) = blocks_of(section.blocks, Table)
    sizes = {row.cells[0].text: row.cells[1].value for row in table.rows}
    assert list(sizes) == ["area", "city"]
    np.testing.assert_allclose(list(sizes.values()), list(expected.values()), rtol=1e-4)
    (chart,) = blocks_of(section.blocks, Chart)
    assert chart.data["y"] == ["area", "city"]
    assert "on 400 evaluated rows" in chart.description
    assert "explain: {}" in chart.description


def test_what_is_not_known_says_why(tmp_path: Path) -> None:
    (text,) = why(page_run(tmp_path / "none", {})).blocks
    assert "no exported model or no rows" in text.text  # pyright: ignore
    *_, run = measured_run(tmp_path, "regression")
    (file,) = (tmp_path / "examples" / "Split-eval").iterdir()
    file.write_bytes(b"no Parquet")
    why_not = importances_of(run.result)  # pyright: ignore[reportAttributeAccessIssue]
    assert "The exported model cannot predict rows: ArrowInvalid" in str(why_not)
    file.unlink()
    assert "there are no rows in" in str(importances_of(run.result))  # pyright: ignore


def test_a_large_split_is_sampled_from_all_its_row_groups(tmp_path: Path) -> None:
    count = 3 * MOST_ROWS
    number = np.arange(count, dtype=float)
    write_rows(tmp_path / "s", number, np.array(["Oslo"] * count), number, group=count // 4)
    rows = read_rows(tmp_path / "s")
    assert rows.num_rows == MOST_ROWS
    labels = rows[rows.schema.get_field_index("label")].to_pylist()
    groups = np.bincount((np.array([value[0] for value in labels]) // (count // 4)).astype(int))
    assert groups.tolist() == [MOST_ROWS // 4] * 4
