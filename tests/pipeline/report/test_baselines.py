"""What the summary shows of baselines."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pipeline.config.config_file import load_config
from pipeline.report import baselines, summary
from pipeline.report.records import NodeRecord, OutputArtifact
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
    monkeypatch.setattr(summary, "slice_values", lambda uri: [("", values)])
    monkeypatch.setattr(summary, "_slices", lambda uri: [("", {})])
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
    assert lines[4][0] == "warning:"
    assert len(lines) == 5
    told = out.getvalue().splitlines()[-1]
    assert told == (
        "warning: the model is worse than a constant: its auc is 0.4000, and 0.5000 for the same "
        "answer in each row (the training rows' share of positives 0.2500)."
    )


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"auc": 0.51, "binary_accuracy": 0.75}, []),
        ({"binary_accuracy": 0.7499}, ["binary_accuracy"]),
        ({"binary_crossentropy": 0.57, "auc": 0.4}, ["binary_crossentropy", "auc"]),
        ({"binary_crossentropy": 0.55, "recall": 0.1}, []),
    ],
)
def test_worse_is_by_the_metrics_direction(values: dict[str, float], told: list[str]) -> None:
    sentences = baselines.worse_than_a_constant(values, (CONSTANT, LINEAR))
    assert [sentence.split("its ")[1].split()[0] for sentence in sentences] == told


def test_a_trainer_without_them_and_another_version(tmp_path: Path) -> None:
    records = trainer(tmp_path / "run", Baselines(1, 2, (), ""))
    file = tmp_path / "run" / "baselines.json"
    assert baselines.read(records) == ()
    file.write_text(json.dumps({**json.loads(file.read_text()), "version": 9}))
    with pytest.raises(ValueError, match=r"baselines.json is not of format .* version 1: run"):
        baselines.read(records)
    file.unlink()
    assert baselines.read(records) == ()
    assert baselines.read({}) == ()
