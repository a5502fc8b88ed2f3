"""A stranger's CSV: missing values, NaN, infinities, rare strings, a skewed number to predict.

Its settings are searched as docs/tuning.md says.
"""

from __future__ import annotations

import csv
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from command_line import ROOT, run_here, run_line, run_pipeline
from parquet_examples import read_rows

pytestmark = pytest.mark.pipelines

ROWS = 1_500
PAGE = (ROOT / "docs" / "tuning.md").read_text(encoding="utf-8")
(TUNING,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)

CONFIG = """
name: houses
data: {path: houses.csv}
features:
  groups:
    - {name: size, columns: [area m2], impute: mean, missing_indicator: true, scale: z_score}
    - {name: rooms, columns: [rooms], encode: {bucketize: {buckets: 4}}}
    - {name: town, columns: [town], encode: {vocabulary: {top_k: 3}}}
  label: {column: price, kind: regression}
  passthrough: [house, note, height]  # a key, and what is not in every row
training:
  global_batch_size: 100
  micro_batch_size: 30  # no divisor of 100, nor of what is left at an epoch's end
  epochs: 8
  intra_op_threads: 1
  optimizer: {name: adamw, learning_rate: 0.02}
  early_stopping: {monitor: loss, patience_epochs: 4}
evaluation:
  slices: [town]
  thresholds: {mean_absolute_error: {upper_bound: 60.0}}
output: {folder: out}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CSV and a YAML in a folder outside the project."""
    folder = tmp_path_factory.mktemp("houses")
    random = np.random.default_rng(7)
    area = random.lognormal(4.5, 0.5, ROWS)
    rooms = random.integers(1, 9, ROWS)
    town = random.choice(["Bergen", "Oslo", "Tromsø", "", "Å"], ROWS, p=[0.4, 0.4, 0.1, 0.09, 0.01])
    price = area * (1 + 0.5 * (town == "Oslo")) * random.lognormal(0.0, 0.1, ROWS)
    with (folder / "houses.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["house", "area m2", "rooms", "town", "note", "height", "price"])
        for i in range(ROWS):
            size = ("", "nan", "inf", "-inf")[i % 4] if i % 25 < 2 else f"{area[i]:.2f}"
            note = "" if i % 5 == 0 else f'say "hi", {i} times'
            height = "" if i % 3 == 0 else f"{i / 8:.3f}"
            number = "" if i % 11 == 0 else rooms[i]
            writer.writerow([i, size, number, town[i], note, height, f"{price[i]:.3f}"])
    (folder / "pipeline.yaml").write_text(CONFIG + TUNING)
    return folder


def shown_trials() -> list:
    """The table of the page: its heading, then number and values of each trial."""
    table = re.findall(r"\n(trial  .*?)\n```", PAGE, flags=re.DOTALL)[0].splitlines()
    rows = [line.split(maxsplit=2) for line in table[1:]]
    return [table[0], *((number, values) for number, _, values in rows)]


@pytest.fixture(scope="module")
def interrupted(folder) -> tuple[int, str]:
    """The run, stopped by Ctrl-C in Transform: its exit code and what it printed.

    Before that, a second one is refused.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline", "run", "--config", str(folder / "pipeline.yaml")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        # Whoever runs the tests in a shell's background has them ignore SIGINT, and all they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    printed = []
    for line in process.stdout:
        printed.append(line)
        if "ExampleValidator: done" in line:
            second = run_here("run", "--config", folder / "pipeline.yaml")
            assert second.code == 4, second.output
            assert f"process {process.pid} on " in second.output
            time.sleep(3)  # into Transform, whose Beam pipeline then runs
            process.send_signal(signal.SIGINT)
            break
    printed += process.stdout.readlines()
    return process.wait(timeout=60), "".join(printed)


@pytest.fixture(scope="module")
def result(folder, interrupted):
    """The same command again, to its end."""
    return run_pipeline("run", "--config", folder / "pipeline.yaml")


def test_the_command_at_the_end_runs_as_pasted(result):
    (line,) = result.lines("predict   ")
    asked = run_line(line.removeprefix("predict").strip())
    assert asked.code == 0, asked.output
    assert "prediction" in asked.output


def test_ctrl_c_leaves_a_store_that_the_next_run_goes_on_with(interrupted, result):
    code, text = interrupted
    assert code == 130, text
    assert "Interrupted in Transform" in text
    assert "Run the same command to continue" in text
    assert result.code == 0, result.output
    how = dict(re.findall(r"^(\w+) +(run|cached) +[\d.]+ (?:s|min)", result.output, re.MULTILINE))
    assert how["ArrowExampleGen"] == how["StatisticsGen"] == how["SchemaGen"] == "cached"
    assert how["Transform"] == how["Pusher"] == "run"


def test_from_csv_to_predictions(folder, interrupted, result):
    assert result.code == 0, result.output
    assert f"{ROWS:,} rows" in interrupted[1]
    assert result.lines("town=Tromsø")
    assert result.lines("blessed: every threshold holds")

    heading, *rows = shown_trials()
    assert result.lines(heading)
    for row in rows:  # what is tried follows from the seed, what it reaches not to the last digit
        assert [line for line in result.lines(row[1]) if row[0] in line.split()[:1]]
    (best,) = result.lines("Tuner: done in")
    score = re.findall(r"best ([\d.]+) of trial 3", best)[0]
    # Trials end after two epochs, where the Trainer with the same values is bit for bit the same.
    assert score in result.lines("Trainer: epoch 2: eval")[0]
    assert len(result.lines("Tuner: trial")) >= 3

    check_what_is_passed_through(folder / "out")

    output = folder / "predictions.csv"
    model, rows = folder / "out" / "serving_model", folder / "houses.csv"
    asked = run_here("predict", "--model", model, "--data", rows, "--output", output)
    assert asked.code == 0
    with (folder / "houses.csv").open(newline="", encoding="utf-8") as stream:
        rare = sum(row["town"] == "Å" for row in csv.DictReader(stream))
    assert f"not in the training data: town ({rare} rows)" in asked.output
    with output.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    predicted = np.array([float(row["prediction"]) for row in rows])
    price = np.array([float(row["price"]) for row in rows])
    assert len(rows) == ROWS
    assert np.isfinite(predicted).all()  # of rows whose area is missing, nan or inf, too
    assert np.corrcoef(predicted, price)[0, 1] > 0.8


def check_what_is_passed_through(output: Path) -> None:
    """Every row's key, text and number as they were, and nothing where the cell was empty."""
    seen = {}
    for row in read_rows(output.glob("artifacts/Transform/transformed_examples/*/Split-*/*")):
        (house,) = row["house"]
        seen[house] = ([note.decode() for note in row["note"]], row["height"])
    assert seen == {
        i: ([f'say "hi", {i} times'] if i % 5 else [], [i / 8] if i % 3 else [])
        for i in range(ROWS)
    }


def test_a_constant_label_is_refused_by_name(folder):
    text = (folder / "houses.csv").read_text(encoding="utf-8").splitlines()
    lines = [text[0], *(line.rpartition(",")[0] + ",5.0" for line in text[1:])]
    (folder / "flat.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    changes = {
        "data.path": "flat.csv",
        "output.folder": folder / "flat",
        # This process has its TensorFlow already.
        "training.intra_op_threads": "null",
    }
    overrides = [f"--set={name}={value}" for name, value in changes.items()]
    refused = run_here("run", "--config", folder / "pipeline.yaml", *overrides)
    assert refused.code == 2
    assert "column 'price' of" in refused.output
    assert "is constant (value 5.0 in all rows of the train split)" in refused.output
    assert not (folder / "flat" / "artifacts").exists()
