"""The end of a run on the terminal."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console
from run_inputs import lines_of, result_of, slice_of

from components.input_gradients.summary import SUMMARY_JSON, summarize
from pipeline.config.config_file import load_config
from pipeline.report import summary
from pipeline.report.console import Consoles
from pipeline.report.progress import NodeState, RunState
from pipeline.report.summary_file import nodes_of, summary_of
from pipeline.report.tables import print_table
from trainer_module.baselines.record import Baseline, Baselines

MATRIX = {(0, 0): 6.0, (0, 1): 2.0, (1, 0): 1.0, (1, 1): 3.0, (2, 1): 1.0}
CONSTANT = Baseline("constant", "share of positives 0.2500", {"auc": 0.5, "recall": 1.0})
LINEAR = Baseline("linear", "logistic regression on 3 columns", {"auc": None})


def test_baselines_and_bounds_stand_below_the_models_metrics(write: Any, tmp_path: Path) -> None:
    thresholds = {"auc": {"lower_bound": 0.3}, "recall": {"upper_bound": 0.9, "max_loss": 0.1}}
    evaluation = {"metrics": ["auc", "recall"], "thresholds": thresholds}
    config = load_config(write(lambda c: c.update(evaluation=evaluation)))
    (tmp_path / "baselines.json").write_text(Baselines(10, 40, (CONSTANT, LINEAR), "").to_json())
    artifacts = {("Trainer", "model_run"): tmp_path, ("Evaluator", "evaluation"): tmp_path / "no"}
    run = result_of(config, artifacts)
    compared = {"arrayValue": {"float64Values": [0.4, 0.5, 1.0, 40.0]}}
    all_rows = slice_of(
        (), {"against_constant": compared}, rows=40.0, mean_label=0.25, auc=0.4, recall=0.2
    )
    city = slice_of((("city", "[/x] [red] :cat:"),), rows=4.0, mean_label=0.5, auc=float("nan"))
    run.__dict__["slices"] = (all_rows, city)
    lines = lines_of(summary.show_metrics, run)
    assert [" ".join(line) for line in lines[1:]] == [
        "all rows 40 0.2500 0.4000 0.2000",
        "city=[/x] [red] :cat: 4 0.5000 undefined -",
        "a constant 0.5000 1.0000",
        "a linear model undefined -",
        "needed on all rows > 0.5, ≥ 0.3 ≤ 0.9, -0.1 of baseline",
    ]
    (warning,) = run.warnings
    assert warning.number == 0.4
    assert f"auc is 0.5000, and 0.4000 for the model ({CONSTANT.is_what})" in str(warning)


@pytest.mark.parametrize("count", [0, 2])
def test_a_blessing_with_warnings_is_not_green(write: Any, count: int) -> None:
    """The terminal shows each warning, those that the YAML keeps too, and the verdict says so."""
    kept = [{"what": f"f{i} may leak", "column": f"f{i}", "fix": "Check"} for i in range(count)]
    config = load_config(write(lambda c: c.update(warnings=kept)))
    run = result_of(config, {("Evaluator", "blessing"): {"blessed": 1}})
    out = io.StringIO()
    console = Console(file=out, width=200, force_terminal=True, color_system="standard")
    summary.show(run, RunState([]), Consoles(console, console, console))
    text = out.getvalue()
    assert text.count("may leak. Check.") == count
    assert ("\x1b[1;32mblessed" in text) == (count == 0)
    assert ("blessed with 2 warnings" in text) == (count == 2)


@pytest.mark.parametrize("name", ["ham", "[/x]"])
def test_the_table_of_classes_says_what_was_taken_for_what(name: str) -> None:
    table = summary.classes_table(MATRIX, [name, "egg"], counted="rows")
    assert lines_of(lambda console: print_table(console, table)) == [
        ["class", "rows", "share", "precision", "recall", "as", name, "as", "egg", "as", "2"],
        [name, "8", "0.6154", "0.8571", "0.7500", "6", "2", "0"],
        ["egg", "4", "0.3077", "0.5000", "0.7500", "1", "3", "0"],
        ["2", "1", "0.0769", "-", "0.0000", "0", "1", "0"],
    ]


def test_of_many_classes_only_the_scores() -> None:
    table = summary.classes_table(
        {(i, i): 50.0 - i for i in range(40)} | {(0, 1): 7.0}, [], counted="rows"
    )
    lines = lines_of(lambda console: print_table(console, summary._first(table, 30, "classes")))
    assert len(lines) == 32
    assert lines[0][-4:] == ["most", "often", "taken", "for"]
    assert lines[1][5:] == ["1", "(7)"]
    assert all(len(line) == 5 for line in lines[2:-1])
    assert lines[-1] == ["and", "10", "more", "classes"]


def test_the_strongest_columns_come_first(write: Any, tmp_path: Path) -> None:
    """Columns c0 to c11 with attributions of c_i = ±i: the mean of their size is i."""
    table = pa.table(
        {
            "prediction": [1.0, 2.0, 3.0, 4.0],
            "baseline_prediction": [0.0] * 4,
            "completeness_error": [0.0] * 4,
            **{f"attribution.c{i}": [i, (-1.0) ** i * i, i, (-1.0) ** i * i] for i in range(12)},
        }
    )
    content = summarize(table, split="eval", steps=8)
    (tmp_path / SUMMARY_JSON).write_text(content.model_dump_json())
    run = result_of(load_config(write()), {("InputGradients", "attributions"): tmp_path})
    assert run.attributions == content
    lines = lines_of(
        lambda console: summary.show(run, RunState([]), Consoles(console, console, console))
    )
    start = next(i for i, line in enumerate(lines) if line[0] == "strongest")
    assert [line[0] for line in lines[start + 1 : -1]] == [f"c{i}" for i in range(11, 1, -1)]
    assert lines[-1] == ["and", "2", "more", "columns"]
    assert lines[start + 1 : start + 3] == [["c11", "11", "+0"], ["c10", "10", "+10"]]
    listed = summary_of(run, RunState([]), run_id="", rows={})["attributions"]
    assert listed[0] == {"column": "c11", "mean_absolute": 11.0, "mean": 0.0}
    assert len(listed) == 12


def test_the_table_of_nodes(write: Any) -> None:
    config = load_config(write())
    uri = f"{config.pipeline_root}/NormalizationValidator/report/7"
    run = result_of(config, {("NormalizationValidator", "report"): uri})
    state = RunState([NodeState("NormalizationValidator", "done", 1.0, 68.0)])
    console = Console(file=io.StringIO(), width=80, markup=False)
    print_table(console, summary.nodes_table(run, nodes_of(state)))
    text = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    assert "NormalizationValidator/report/7" in text
    assert "1 min 07 s" in text
