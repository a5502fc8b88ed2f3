"""What the summary shows of baselines."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pipeline.config.config_file import load_config
from pipeline.report import baselines, run_warnings, summary
from pipeline.report.records import NodeRecord, OutputArtifact
from pipeline.report.too_good import too_good
from trainer_module.baselines.record import Baseline, Baselines

CONSTANT = Baseline(
    "constant",
    "the training rows' share of positives 0.2500",
    {"auc": 0.5, "binary_accuracy": 0.75, "recall": 1.0, "binary_crossentropy": 0.56},
)
LINEAR = Baseline("linear", "logistic regression on 3 columns", {"auc": None})


def trainer(folder: Path, written: Baselines) -> dict[str, NodeRecord]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "baselines.json").write_text(written.to_json())
    return {"Trainer": NodeRecord("Trainer", {"model_run": [OutputArtifact(str(folder), {})]})}


def test_they_stand_below_the_models_metrics(
    write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(write(lambda c: c.update(evaluation={"metrics": ["auc", "recall"]})))
    values = {"rows": 40.0, "mean_label": 0.25, "auc": 0.4, "recall": 0.2}
    for module in (summary, run_warnings):
        monkeypatch.setattr(module, "slice_values", lambda uri: [("", values)])
    monkeypatch.setattr(summary, "named_slices", lambda uri: [("", {})])
    records = trainer(tmp_path / "run", Baselines(10, 40, (CONSTANT, LINEAR), ""))
    evaluation = {"evaluation": [OutputArtifact(str(tmp_path), {})]}
    records["Evaluator"] = NodeRecord("Evaluator", evaluation)
    out = io.StringIO()
    console = Console(file=out, width=200)
    summary.show_metrics(config, records, console)
    lines = [line.split() for line in out.getvalue().splitlines() if line]
    assert lines[1] == ["all", "rows", "40", "0.2500", "0.4000", "0.2000"]
    assert lines[2] == ["a", "constant", "0.5000", "1.0000"]
    assert lines[3] == ["a", "linear", "model", "undefined", "-"]
    assert len(lines) == 4
    (warning,) = run_warnings.run_warnings(config, records)
    assert warning.number == 0.4
    for fact in ("auc is 0.5000", "0.4000 for the model", CONSTANT.is_what):
        assert fact in str(warning)


@pytest.mark.parametrize(
    ("metric", "value", "warns"),
    [
        ("binary_accuracy", 0.75, False),
        ("binary_accuracy", 0.7499, True),
        ("binary_crossentropy", 0.57, True),
        ("binary_crossentropy", 0.55, False),
        ("auc", 0.4, True),
    ],
)
def test_worse_is_by_the_metrics_direction(metric: str, value: float, warns: bool) -> None:
    found = baselines.worse_than_baselines(metric, {metric: value, "other": 0.0}, (CONSTANT,))
    assert [metric in str(each) for each in found] == [True] * warns


def test_a_trainer_without_them_and_another_version(tmp_path: Path) -> None:
    records = trainer(tmp_path / "run", Baselines(1, 2, (), ""))
    file = tmp_path / "run" / "baselines.json"
    assert baselines.read(records) == ()
    file.write_text(json.dumps({**json.loads(file.read_text()), "version": 9}))
    with pytest.raises(ValueError, match=r"baselines.json is not of format .* version 2: run"):
        baselines.read(records)
    file.unlink()
    assert baselines.read(records) == ()
    assert baselines.read({}) == ()


@pytest.mark.parametrize(
    ("metric", "linear", "model", "warns"),
    [
        ("auc", 0.8, 0.79, True),
        ("auc", 0.8, 0.8, False),
        ("auc", 0.8, 0.9, False),
        ("auc", None, 0.9, False),
        ("mean_absolute_error", 2.0, 2.1, True),
        ("mean_absolute_error", 2.0, 1.9, False),
        ("mean_absolute_error", 2.0, 2.0001, False),  # equal in the table
    ],
)
def test_a_better_linear_model_is_reported(
    metric: str, linear: float | None, model: float, warns: bool
) -> None:
    found = (CONSTANT, Baseline("linear", "on 3 columns", {metric: linear}))
    sentences = baselines.worse_than_baselines(metric, {metric: model}, found[1:])
    assert bool(sentences) == warns
    if warns:
        assert f"its {metric} is {linear:.4f}, and {model:.4f} for the model" in str(sentences[0])


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"auc": 0.9991}, "Check that each feature is known"),
        ({"auc": 0.995}, None),
        ({"mean_absolute_error": 0.0, "r2": 0.991}, "r2 is 0.9910"),
        ({"sparse_categorical_accuracy": 1.0}, "sparse_categorical_accuracy is 1.0000"),
        ({"recall": 1.0}, None),
        ({}, None),
    ],
)
def test_a_result_that_is_too_good_is_questioned(
    values: dict[str, float], says: str | None
) -> None:
    warnings = too_good(values, Baselines(10, 40, (CONSTANT,), ""))
    assert len(warnings) == (says is not None)
    assert says is None or says in str(warnings[0])


def test_an_accuracy_that_a_constant_has_is_not_questioned() -> None:
    rare = Baseline("constant", "", {"binary_accuracy": 0.997})
    assert too_good({"binary_accuracy": 0.998}, Baselines(10, 40, (rare,), "")) == []
    assert too_good({"binary_accuracy": 0.998}, None) != []
