"""How good is a first model? `init` and `run` untouched, against scikit-learn, on public tables.

Of each table a fifth of the rows is put aside, by a seed. `init` and `run` get the others as a CSV
file, and nothing else; `predict` asks the pushed model for the rows that were put aside. Of its
file the pipeline holds out rows itself, for early stopping and evaluation: HistGradientBoosting and
a linear model (Ridge, LogisticRegression) of scikit-learn, with their own defaults, are fitted on
just the rows that our model was trained on, and all are judged on the rows that none has seen.
Texts are categories for the trees and one-hot for the linear model, dates are year, month, day and
weekday.

The baseline is the better of the two, over all seeds: AUC for two classes, accuracy for more (ours
should be 0.98 of it or more), mean absolute error for numbers (1.1 of it or less). A round is a
seed. What `init` writes was chosen while looking at the first seed's rows; the others are a check
of that, though of the same tables. The time is that of `init` and `run` as a user starts them, each
in a separate process, once per table, in seconds of all processors: more than the clock shows
where nothing else runs.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchmarks import _report
from benchmarks._measure import in_own_process
from benchmarks._other_models import features_of, predictions
from benchmarks._result import Limit, Row, Unit
from benchmarks._tables import TABLES, Table

SEEDS = 5
ASIDE = 0.2  # of the rows
SECONDS = 120.0
OURS = "ours"


class Found(NamedTuple):
    """What became of a table.

    Attributes:
        rows: Of the whole table.
        columns: Beside label and index.
        scores: Of each model, one per seed.
        cpu_seconds: Of all processors, which `init` and `run` took once.
    """

    rows: int
    columns: int
    scores: dict[str, list[float]]
    cpu_seconds: float

    def more(self, other: Found) -> Found:
        """Returns it with the scores of another seed."""
        scores = {model: [*mine, *other.scores[model]] for model, mine in self.scores.items()}
        return self._replace(scores=scores)


def main() -> None:
    """Runs all tables once per seed, each seed in a separate process."""
    parser = _report.parser(__file__, rounds=SEEDS)
    parser.add_argument("--tables", default=",".join(TABLES), help="comma-separated: %(default)s")
    parser.add_argument("--folder", type=Path, help="keeps what is made; default: a temporary one")
    arguments = parser.parse_args()
    names = ["iris"] if arguments.quick else arguments.tables.split(",")
    if unknown := set(names) - set(TABLES):
        parser.error(f"--tables: there is no {', '.join(sorted(unknown))}")
    found: dict[str, Found] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.folder or Path(temporary)).absolute()
        for seed in range(1 if arguments.quick else arguments.runs):
            for name, new in in_own_process(measure, names, seed, str(folder)).items():
                found[name] = found[name].more(new) if name in found else new
            # After each seed: all of them take an hour.
            rows = [row for name, each in found.items() for row in as_rows(name, each)]
            notes = {name: scores_of_all(name, each) for name, each in found.items()}
            notes["behind"] = behind(rows)
            _report.publish(__file__, rows, quick=arguments.quick, notes=notes)


def measure(names: list[str], seed: int, folder: str) -> dict[str, Found]:
    """Returns what became of each table with a seed; the first one's commands are timed."""
    results = {}
    for name in names:
        table = TABLES[name]
        whole = table.read()
        place = Path(folder) / name.replace(" ", "-") / f"seed-{seed}"
        place.mkdir(parents=True, exist_ok=True)
        aside = split(whole, table, place, seed=seed)
        seconds = math.nan
        if seed == 0:
            seconds = _in_processes(place, table)
        else:
            _in_process(place, table)
        scores = judged(place, table, aside)
        results[name] = Found(
            rows=len(whole),
            columns=len(whole.columns) - 1 - ("" in whole.columns),
            scores={model: [score] for model, score in scores.items()},
            cpu_seconds=seconds,
        )
        shown = ", ".join(f"{model} {score:.4g}" for model, score in scores.items())
        print(f"seed {seed}, {name}: {shown}; {seconds:.0f} s of processor time", flush=True)
    return results


def split(whole: pd.DataFrame, table: Table, place: Path, *, seed: int) -> pd.DataFrame:
    """Writes the rows that `init` and `run` get; returns those put aside, whose label is known.

    Each class has its share of both: of rare ones chance would decide whether they are judged.
    """
    from sklearn.model_selection import train_test_split

    known = whole[whole[table.label].notna()]
    classes = None if table.kind == "regression" else known[table.label]
    _, aside = train_test_split(known, test_size=ASIDE, random_state=seed, stratify=classes)
    whole.drop(index=aside.index).to_csv(place / "table.csv", index=False)
    # The model is asked without the answer.
    aside.drop(columns=table.label).to_csv(place / "aside.csv", index=False)
    return aside


def judged(place: Path, table: Table, aside: pd.DataFrame) -> dict[str, float]:
    """Returns the score of each model on the rows put aside."""
    train = trained_on(place)
    # Read as our model reads them: from the file.
    asked = pd.read_csv(place / "aside.csv")
    truth, labels = aside[table.label].to_numpy(), train[table.label].to_numpy()
    if table.kind != "regression":
        truth, labels = truth.astype(str), labels.astype(str)
    like = train.drop(columns=table.label)
    found: dict[str, Any] = {OURS: _predict(place, table, sorted(set(labels))[-1])}
    found |= predictions(
        table.kind,
        features_of(like, like, table.dates),
        labels,
        features_of(asked, like, table.dates),
    )
    return {model: score(table, truth, said) for model, said in found.items()}


def score(table: Table, truth: np.ndarray, said: np.ndarray) -> float:
    """AUC, accuracy or mean absolute error."""
    from sklearn import metrics

    if table.kind == "binary":
        return float(metrics.roc_auc_score(truth == max(truth), said))
    if table.kind == "multiclass":
        return float(metrics.accuracy_score(truth, said.astype(str)))
    return float(metrics.mean_absolute_error(truth.astype(float), said.astype(float)))


def trained_on(place: Path) -> pd.DataFrame:
    """Returns the rows that our model was trained on, as its ExampleGen wrote them."""
    import pyarrow.parquet as pq

    rows = [
        {name: _value(values) for name, values in row.items()}
        for file in sorted((place / "output").glob("**/examples/*/Split-train/*"))
        for row in pq.read_table(file).to_pylist()
    ]
    return pd.DataFrame(rows)


def _value(values: list[Any] | None) -> Any:
    if not values:
        return None
    return values[0].decode() if isinstance(values[0], bytes) else values[0]


def as_rows(name: str, found: Found) -> list[Row]:
    """Returns the comparison with the better of the others, and that of the time."""
    table = TABLES[name]
    regression = table.kind == "regression"
    units: dict[str, Unit] = {"binary": "AUC", "multiclass": "accuracy", "regression": "MAE"}
    others = {model: statistics.mean(s) for model, s in found.scores.items() if model != OURS}
    better = (min if regression else max)(others, key=lambda model: others[model])
    return [
        Row(
            what=name,
            baseline_name="the better of two models of scikit-learn",
            ours=found.scores[OURS],
            baseline=found.scores[better],
            unit=units[table.kind],
            limit=Limit(1.1) if regression else Limit(0.98, least=True),
            detail=better,
        ),
        Row(
            what=f"{name}: init and run, processor time",
            baseline_name=f"{SECONDS:.0f} s",
            ours=[found.cpu_seconds],
            baseline=[SECONDS],
            limit=Limit(1.0),
        ),
    ]


def behind(rows: Sequence[Row]) -> str:
    """Returns a sentence that names the tables where a limit is missed."""
    missed = [
        f"{row.what} ({row.ratio:.3f} of {row.detail or row.baseline_name})"
        for row in rows
        if row.limit is not None and not row.limit.is_met(row.ratio)
    ]
    return f"Behind: {', '.join(missed)}." if missed else "Nothing is behind."


def scores_of_all(name: str, found: Found) -> str:
    """Returns a sentence with the scores of all models, over all seeds."""
    means = ", ".join(
        f"{model} {statistics.mean(values):.4g}" for model, values in found.scores.items()
    )
    return (
        f"{name}, {found.rows:,} rows of {found.columns} columns and a label: {means} on average "
        f"over {len(found.scores[OURS])} seeds."
    )


def _in_processes(place: Path, table: Table) -> float:
    """Returns the seconds of all processors that both commands took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for arguments in _commands(table):
        command = [sys.executable, "-m", "pipeline", *arguments]
        done = subprocess.run(command, cwd=place, text=True, capture_output=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-4000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _in_process(place: Path, table: Table) -> None:
    """The same commands here, where TFX is imported already."""
    import keras

    from pipeline.cli.cli import main as command

    keras.backend.clear_session()
    said = io.StringIO()
    with _working_in(place), contextlib.redirect_stdout(said):
        for arguments in _commands(table):
            if code := command(arguments):
                raise SystemExit(f"{arguments} ended with {code}:\n{said.getvalue()[-4000:]}")


@contextlib.contextmanager
def _working_in(place: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(place)
    try:
        yield
    finally:
        os.chdir(before)


def _commands(table: Table) -> list[list[str]]:
    return [
        ["init", "--data", "table.csv", "--label", table.label, "--force"],
        ["run", "--config", "table.yaml"],
    ]


def _predict(place: Path, table: Table, positive: str) -> np.ndarray:
    """Returns what the pushed model says of the rows put aside, as `predictions` does."""
    from pipeline.cli.cli import main as command

    model = max((place / "output" / "table" / "serving_model").iterdir())
    with _working_in(place), contextlib.redirect_stdout(io.StringIO()):
        code = command(
            ["predict", "--model", str(model), "--data", "aside.csv", "--output", "said.csv"]
        )
    assert code == 0, code
    said = pd.read_csv(place / "said.csv", keep_default_na=False)
    name = f"probability_{positive}" if table.kind == "binary" else "prediction"
    return said[name].to_numpy()


if __name__ == "__main__":
    main()
