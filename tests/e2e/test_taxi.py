"""The taxi example from raw CSV to a pushed model, as `make run` does it."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet
import pytest
import yaml
from attribution_files import check_attributions
from command_line import ROOT, TAXI, run_here, run_tfx_here
from run_inputs import blocks_of, texts_of
from sklearn.metrics import roc_auc_score

from pipeline.common import exit_codes
from pipeline.page import data, features
from pipeline.page.elements import percent, short
from pipeline.page.page import page_run
from pipeline.report.run_record import records_of
from pipeline.report.tables import Table

pytestmark = pytest.mark.slow

PROFILING = (ROOT / "docs" / "profiling.md").read_text(encoding="utf-8")
DATA = "package://tfx/examples/chicago_taxi_pipeline/data/simple/data.csv"
NODES = [
    "ArrowExampleGen",
    "LatestBlessedModel",
    "StatisticsGen",
    "SchemaGen",
    "ExampleValidator",
    "Transform",
    "NormalizationValidator",
    "Trainer",
    "Evaluator",
    "Pusher",
]


def results(output: str) -> dict[str, str]:
    """Node -> run or cached, from the table at the end."""
    rows = re.findall(r"^(\w+) +(run|cached) +[\d.]+ (?:s|min)", output, flags=re.MULTILINE)
    return dict(rows)


def test_every_node_runs_and_is_listed_with_its_output(taxi):
    assert results(taxi.result.output) == dict.fromkeys(NODES, "run")
    assert "15,002 rows" in taxi.result.lines("StatisticsGen: done")[0]
    assert taxi.result.lines("Trainer/model/")
    assert taxi.result.lines("Trainer: epoch 10: eval")


def test_no_log_line_reaches_the_terminal_and_all_reach_the_file(taxi):
    assert not re.search(r"^[IWE]\d{4} |INFO|WARNING", taxi.result.output, flags=re.MULTILINE)
    log = min((taxi.folder / "logs").glob("run-*.log"))
    assert "Component Trainer is running." in log.read_text()


def test_auc_reaches_what_gradient_boosting_reaches(taxi):
    """Issue: AUC >= 0.94 on the eval split, where HistGradientBoosting reaches 0.946."""
    rows, mean_label, auc, accuracy = taxi.result.lines("all rows")[0].split()[2:]
    assert 4_500 < int(rows.replace(",", "")) < 5_500
    assert 0.2 < float(mean_label) < 0.25
    assert float(auc) >= 0.94
    assert float(accuracy) >= 0.88


def test_slices_are_shown_and_an_undefined_metric_is_not_a_number(taxi):
    assert float(taxi.result.lines("payment_type=Credit Card")[0].split()[-2]) > 0.5
    # Nobody who pays in cash tips more than 20 %: one class, so no AUC.
    assert taxi.result.lines("payment_type=Dispute")[0].split()[-2] == "undefined"


def test_the_model_is_blessed_and_pushed(taxi):
    assert taxi.result.lines("blessed: every threshold holds")
    assert (taxi.pushed / "saved_model.pb").is_file()
    assert str(taxi.pushed) in taxi.result.lines("pushed to")[0]


def test_predict_gives_the_rows_with_a_probability_each(taxi, tmp_path):
    output, model = tmp_path / "predictions.csv", taxi.folder / "serving_model"
    result = run_here("predict", "--model", model, "--data", DATA, "--output", output)
    assert result.code == 0
    assert "15,002 rows" in result.output
    with output.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    predicted = np.array([float(row["probability_1"]) for row in rows])
    assert [row["prediction"] for row in rows] == ["01"[int(p >= 0.5)] for p in predicted]
    truth = np.array([float(row["tips"]) > 0.2 * float(row["fare"]) for row in rows])
    assert len(rows) == 15_002
    assert ((predicted >= 0) & (predicted <= 1)).all()
    # All rows, so train's too: a little above the eval split's AUC.
    assert roc_auc_score(truth, predicted) > 0.945


def test_predict_needs_no_label_columns_and_says_what_is_missing(taxi, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("fare,company\n12.5,Taxi\n")
    result = run_here("predict", "--model", taxi.pushed, "--data", rows)
    assert result.code == 2
    assert f"--data={rows}: missing columns: " in result.output
    assert "trip_miles" in result.output
    assert "tips" not in result.output


def test_the_page_has_the_numbers_of_the_artifacts(taxi):
    """References: report.json of the validator, and the rows of ExampleGen."""
    run = page_run(records_of(taxi.folder)[0])
    (report,) = taxi.folder.glob("artifacts/NormalizationValidator/report/*/report.json")
    of_train, of_eval = (split["columns"] for split in json.loads(report.read_text())["splits"])
    train = {column["name"]: column for column in of_train}
    assert {"fare", "company"} <= train.keys() == {column["name"] for column in of_eval}
    blocks = features.section_of(run).blocks
    (table,) = (each for each in blocks_of(blocks, Table) if "Transformed" in each.caption)
    place = [column.name for column in table.columns].index("mean")
    found = {row.cells[0].text: row.cells[place].value for row in table.rows}
    assert found == {name: train[name]["mean"] for name in train}
    steps = next(row.details[0].texts for row in table.rows if row.cells[0].text == "miles")
    assert [text.split(":")[0] for text in steps[1:]] == [
        "clip absolute",
        "impute mean",
        "scale z_score",
    ]
    (raw,) = (t for t in blocks_of(data.section_of(run).blocks, Table) if "Raw" in t.caption)
    files = next(taxi.folder.glob("artifacts/ArrowExampleGen/examples/*/Split-train"))
    rows = pyarrow.parquet.read_table(files)
    shown = texts_of(raw)
    for name in ("fare", "company", "dropoff_latitude"):
        present = rows[name].combine_chunks().flatten()
        assert shown[name]["missing"] == percent(1 - len(present) / rows.num_rows)
    assert shown["fare"]["mean"] == short(float(np.mean(rows["fare"].combine_chunks().flatten())))
    assert shown["company"]["distinct"] == str(
        len(rows["company"].combine_chunks().flatten().unique())
    )


class Shown(NamedTuple):
    """A run on a terminal: its exit code, what was shown, and what it printed for scripts."""

    code: int
    text: str
    printed: str


@pytest.fixture(scope="module")
def on_a_terminal(taxi) -> Shown:
    """The same command a second time, on a terminal, with --json to another program."""
    ours, theirs = pty.openpty()
    arguments = ["run", "--config", "examples/taxi/pipeline.yaml"]
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "pipeline", *arguments),
            *("--json", "--set", f"output.folder={taxi.folder}"),
        ],
        cwd=ROOT,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"},
    )
    os.close(theirs)
    chunks = []
    with contextlib.suppress(OSError):  # Linux says so when the other end is closed
        while chunk := os.read(ours, 65536):
            chunks.append(chunk)
    os.close(ours)
    printed, _ = process.communicate(timeout=60)
    return Shown(process.returncode, b"".join(chunks).decode(), printed)


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", text)


def test_second_run_is_cached(on_a_terminal, taxi):
    code, text, printed = on_a_terminal
    assert code == 0, text
    found = json.loads(printed)
    assert found == json.loads((taxi.folder / "summary.json").read_text(encoding="utf-8"))
    assert found["verdict"]["result"] == "blessed"
    assert set(found["rows"]) == {"train", "eval"}
    assert 0.5 < found["metrics"]["auc"]["value"] <= 1.0
    assert Path(found["pushed_model"]).is_dir()
    how = results(without_colours(text))
    assert how.keys() == set(NODES)
    # TFX has no cache for resolvers; it must look for the latest blessed model each time.
    ran = {node for node, how in how.items() if how == "run"}
    assert ran == {"LatestBlessedModel", "Evaluator", "Pusher"} or ran == {"LatestBlessedModel"}


def test_a_terminal_shows_lines_of_each_node_and_no_log_line(on_a_terminal, taxi):
    code, text, _ = on_a_terminal
    assert code == 0
    assert all(re.search(rf"\] {node}: (done|cached) in ", without_colours(text)) for node in NODES)
    assert "Warning" not in text
    assert not re.search(r"[IWE]\d{4} \d\d:", text)
    # No line is wider than the terminal, except paths to copy.
    lines = without_colours(text.replace("\r", "\n")).splitlines()
    assert all(len(line) <= 120 or str(taxi.folder) in line for line in lines)
    assert not any("…" in line for line in lines)


def test_training_settings_rerun_from_the_trainer_on(retrained):
    """Also the change threshold: one step's model is worse than the blessed one, so not pushed."""
    result = retrained.result
    assert result.code == exit_codes.NOT_BLESSED == 3, result.output
    how = results(result.output)
    assert {node for node in NODES[:7] if how[node] == "run"} == {"LatestBlessedModel"}
    assert how["Trainer"] == how["Evaluator"] == "run"
    assert result.lines("not blessed, so not pushed:")
    assert result.lines("needed at least 0.94")
    assert result.lines("from the baseline; allowed -0.005")
    assert retrained.pushed_after == retrained.pushed_before


def test_explain_shows_the_strongest_columns_and_writes_rows(retrained, taxi):
    assert results(retrained.result.output)["InputGradients"] == "run"
    (folder,) = (taxi.folder / "artifacts" / "InputGradients" / "attributions").iterdir()
    summary = check_attributions(folder, rows=60)
    name, size = summary.strongest(1)[0]
    shown = retrained.result.lines(name)
    assert any(line.split()[-2:][0] == f"{size:.4g}" for line in shown)


def test_a_failing_node_says_why_in_its_own_words(taxi):
    changes = (f"output.folder={taxi.folder}", "normalization.z_score.max_abs_mean=0")
    changes = [f"--set={change}" for change in (*changes, "normalization.ignore=[]")]
    compiled = taxi.folder / "compiled"
    compiled.mkdir()
    code, printed = result = run_here("run", TAXI, *changes, "--json", "--quiet")
    assert code == 1
    assert not compiled.exists(), "a damaged file of XLA would fail the next run too"
    assert result.lines("NormalizationValidator failed after")
    error = json.loads(printed[printed.index("{\n") :])["error"]
    assert error["node"] == "NormalizationValidator"
    assert error["exit_code"] == 1
    assert "normalization.z_score.max_abs_mean" in error["message"]
    assert error["message"] in printed.partition("{\n")[0]
    assert f"Log: {error['log']}" in printed
    assert "Traceback" in Path(error["log"]).read_text(encoding="utf-8")
    assert "Traceback" not in printed


def test_the_command_of_the_page_of_profiles(taxi):
    """The numbers are times: words count."""
    (shown,) = re.findall(r"```console\n\$ python -m pipeline (profile.*)\n", PROFILING)
    assert shown == f"profile --config {TAXI.relative_to(ROOT)}"
    before = sorted(taxi.folder.rglob("*"))
    result = run_here("profile", "--config", TAXI, f"--set=output.folder={taxi.folder}")
    assert result.code == 0, result.output
    (title,) = re.findall(r"^50 steps of \d+ rows on 1 replica.*$", PROFILING, flags=re.MULTILINE)
    assert title in result.output
    found = {}
    for line in result.output.partition("wall time")[0].splitlines():
        if numbers := re.fullmatch(r"([a-z ]+?) +([\d,.]+) +([\d.]+)%", line):
            found[numbers[1]] = float(numbers[3])
    assert {"reading", "forward", "backward", "update", "host overhead"} <= found.keys()
    assert sum(found.values()) == pytest.approx(100, abs=1)
    assert sorted(taxi.folder.rglob("*")) == before


def test_tfx_s_own_command_line_creates_and_runs_the_pipeline(taxi, tmp_path, monkeypatch):
    """Through pipeline/local_runner.py, which TFX starts as a process."""
    config = yaml.safe_load(TAXI.read_text())
    # The folder of the run that the other tests look at: its nodes come from the cache.
    config["output"]["folder"] = str(taxi.folder)
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("TFX_LARGEBATCH_CONFIG", str(file))
    monkeypatch.setenv("LOCAL_HOME", str(tmp_path / "home"))
    # As after activation: tfx calls `pip` and `python`.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")

    path = ("--pipeline_path", "pipeline/local_runner.py")
    created = run_tfx_here("pipeline", "create", "--engine", "local", *path)
    assert created.code == 0, created.output
    assert 'Pipeline "chicago-taxi" created successfully.' in created.output
    name = ("--pipeline_name", "chicago-taxi")
    run = run_tfx_here("run", "create", "--engine", "local", *name)
    assert run.code == 0, run.output
    assert "Trainer: cached" in run.output
    assert "blessed: every threshold holds" in run.output
