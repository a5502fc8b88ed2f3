"""From CSV to pushed model in processor seconds, against TFX's taxi template and code by hand.

The taxi example trains 2 epochs of batches of 4,096 rows on the CSV of the tfx wheel, repeated 10
and 40 times over. Each run is a separate process, and its seconds are those of the whole process,
imports included. The baselines read the same file: TFX's taxi template, which takes the 1,000
steps of 40 rows that it comes with and evaluates without slices, and `_by_hand.py`, which keeps
all rows in memory and uses Arrow, NumPy, Keras and scikit-learn alone. `--before COMMIT` adds our
own code at an older commit.

The rows named by a node compare 40 times the rows with 10 times: 4 is linear growth. The notes
say what a node takes per million rows, which is the slope between both.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import _report
from benchmarks._result import Limit, Row
from benchmarks.pipeline_walltime import check_pushed, copy_template

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = Path(__file__).parent
TIMES = (10, 40)
OURS, TEMPLATE, BY_HAND = "ours", "TFX's taxi template", "by hand"
WANTED = {TEMPLATE: 0.2, BY_HAND: 2.5}
WANTED_BEFORE = 0.2
NODES = {  # ours, and the processor seconds per million rows that are wanted
    "ArrowExampleGen": 8.0,
    "StatisticsGen": 5.0,
    "Transform": 18.0,
    "NormalizationValidator": 3.0,
    "Trainer": None,
    "Evaluator": None,
}


def main() -> None:
    """Runs all contenders in turns, for each number of rows."""
    parser = _report.parser(__file__, rounds=3)
    parser.add_argument("--before", metavar="COMMIT", help="also measure our code at this commit")
    parser.add_argument(
        "--times",
        type=int,
        nargs="+",
        default=TIMES,
        help="how often the rows of the CSV are repeated (default: %(default)s)",
    )
    arguments = parser.parse_args()
    times, runs = ((1,), 1) if arguments.quick else (arguments.times, arguments.runs)
    names = [OURS, BY_HAND] if arguments.quick else [OURS, TEMPLATE, BY_HAND]
    names += [f"commit {arguments.before}"] if arguments.before else []
    with tempfile.TemporaryDirectory() as folder:
        contenders = Contenders(Path(folder), arguments.before)
        nodes: dict[int, list[dict[str, float]]] = {}
        rows: list[Row] = []
        count = 0
        for each in times:
            count = contenders.write_csv(each)
            found: dict[str, list[float]] = {name: [] for name in names}
            for index in range(runs):
                for name in names if index % 2 == 0 else reversed(names):
                    seconds, by_node = contenders.run(name)
                    found[name].append(seconds)
                    if name == OURS:
                        nodes.setdefault(each, []).append(by_node)
                    print(f"{count:,} rows, {name}: {seconds:.1f} s {_text(by_node)}", flush=True)
            for name in names[1:]:
                limit = Limit(WANTED.get(name, WANTED_BEFORE)) if each == max(TIMES) else None
                what = f"whole run, {count:,} rows"
                rows.append(Row(what, name, found[OURS], found[name], limit=limit))
    notes = {}
    if len(times) > 1:
        few, many = min(times), max(times)
        rows += _growth(nodes, few, many)
        notes = _notes(nodes, few, many, rows_of_the_file=count // times[-1])
    _report.publish(__file__, rows, quick=arguments.quick, notes=notes)


class Contenders:
    """What is measured, in a folder."""

    def __init__(self, folder: Path, before: str | None):
        self._folder = folder
        self._csv = folder / "data" / "data.csv"
        self._csv.parent.mkdir()
        self._template = copy_template(folder / "template")
        self._older: Path | None = None
        if before:
            self._older = folder / "older"
            clone = ["git", "clone", "--quiet", "--no-checkout", str(ROOT), str(self._older)]
            subprocess.run(clone, check=True)
            subprocess.run(["git", "checkout", "--quiet", before], cwd=self._older, check=True)
        self._runs = 0

    def write_csv(self, times: int) -> int:
        """Repeats the rows of the taxi CSV; returns their number."""
        [source] = (self._template / "data").glob("*.csv")
        header, *lines = source.read_text().splitlines(keepends=True)
        self._csv.write_text(header + "".join(lines) * times)
        return len(lines) * times

    def run(self, name: str) -> tuple[float, dict[str, float]]:
        """Returns the processor seconds of one run, and those of its nodes if they are known."""
        self._runs += 1
        target = self._folder / f"run-{self._runs}"
        try:
            if name == BY_HAND:
                program = str(PROGRAMS / "_by_hand.py")
                return _measured([program, str(self._csv), str(target)], cwd=ROOT)
            if name == TEMPLATE:
                shutil.copytree(self._template, target)
                shutil.rmtree(target / "data")
                shutil.copytree(self._csv.parent, target / "data")
                found = _measured(["local_runner.py"], cwd=target, legacy_keras=True)
                check_pushed(target / "tfx_pipeline_output")
                return found
            checkout = self._older if name != OURS and self._older else ROOT
            # A copy, so that the first folder of Python's search path is not that of our checkout.
            program = str(shutil.copy(PROGRAMS / "_node_seconds.py", self._folder))
            overrides = [
                f"data.path={self._csv}",
                f"output.folder={target}",
                "training.epochs=2",
                "training.global_batch_size=4096",
                "training.micro_batch_size=4096",
                # 50 steps, with the fewest rows: a model that is not blessed is not pushed.
                "evaluation.thresholds.auc.lower_bound=0.9",
            ]
            config = str(checkout / "examples" / "taxi" / "pipeline.yaml")
            return _measured([program, config, *overrides], cwd=checkout)
        finally:
            shutil.rmtree(target, ignore_errors=True)


def _measured(
    command: list[str], *, cwd: Path, legacy_keras: bool = False
) -> tuple[float, dict[str, float]]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(cwd),
        "TF_USE_LEGACY_KERAS": str(int(legacy_keras)),
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        said = (done.stdout + done.stderr)[-4000:]
        raise SystemExit(f"{' '.join(command)} failed:\n{said}")
    seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    last = done.stdout.strip().rpartition("\n")[2]
    return seconds, json.loads(last) if last.startswith("{") else {}


def _growth(nodes: dict[int, list[dict[str, float]]], few: int, many: int) -> list[Row]:
    """Returns for each node its seconds with the most rows, against those with the fewest."""
    return [
        Row(
            f"{node}, {many} times the rows",
            f"{few} times",
            [each[node] for each in nodes[many]],
            [each[node] for each in nodes[few]],
            limit=Limit(many / few),
        )
        for node in NODES
    ]


def _notes(
    nodes: dict[int, list[dict[str, float]]], few: int, many: int, *, rows_of_the_file: int
) -> dict[str, str]:
    """Returns what each node takes per million rows of the CSV, and for any number."""
    fewer, more = (
        {node: statistics.median(each[node] for each in nodes[times]) for node in nodes[times][0]}
        for times in (few, many)
    )
    notes = {"start-up": f"Start-up takes {more['start-up']:.1f} s."}
    for node, wanted in NODES.items():
        slope = (more[node] - fewer[node]) / ((many - few) * rows_of_the_file) * 1e6
        fixed = fewer[node] - slope * few * rows_of_the_file / 1e6
        limit = f" (wanted: {wanted:g})" if wanted else ""
        notes[node] = (
            f"{node} takes {slope:.1f} s per million rows{limit} and {fixed:.1f} s for any number."
        )
    return notes


def _text(nodes: dict[str, float]) -> str:
    return " ".join(f"{name} {seconds:.1f}" for name, seconds in nodes.items())


if __name__ == "__main__":
    main()
