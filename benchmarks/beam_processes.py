"""Rows per second of the taxi pipeline's Beam nodes on two processes, against one.

`beam: {engine: multi_processing, workers: 2}` against `in_memory`, from a single CSV file of the
rows in the tfx wheel, over and over. A row counts the nodes' time by the clock, with the start of
the workers in it. The Trainer takes one step: it is no Beam node. `--rows 15002`
shows what the start of the workers takes.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from benchmarks import _report
from benchmarks._node_costs import Costs, node_costs, write_taxi_csv
from benchmarks._result import Limit, Row

ROWS = 5_000_000
NODES = (
    *("ArrowExampleGen", "StatisticsGen", "Transform"),
    *("NormalizationValidator", "Evaluator"),
)
ALL = "all Beam nodes"
SETTINGS = ("beam.engine=multi_processing", "beam.workers=2")
TWO = "two processes"


def main() -> None:
    """Runs both in turns."""
    parser = _report.parser(__file__, rounds=3)
    parser.add_argument("--rows", type=int, default=ROWS, help="of the CSV (default: %(default)s)")
    arguments = parser.parse_args()
    count, rounds = (500, 1) if arguments.quick else (arguments.rows, arguments.runs)
    engines = {"one process": (), TWO: SETTINGS}
    found: dict[str, list[Costs]] = {engine: [] for engine in engines}
    with tempfile.TemporaryDirectory() as folder:
        write_taxi_csv(Path(folder) / "taxi.csv", count)
        for index in range(rounds):
            for engine in engines if index % 2 == 0 else reversed(engines):
                with tempfile.TemporaryDirectory() as output:
                    costs = node_costs(
                        f"data.path={folder}/taxi.csv",
                        f"output.folder={output}",
                        "training.epochs=null",
                        "training.steps=1",
                        *engines[engine],
                    )
                found[engine].append(costs)
                print(f"{engine}: {_seconds(costs, ALL):.1f} s", flush=True)
    rows = [
        Row(
            what=f"{node}, {count:,} rows, {TWO}",
            baseline_name="one process",
            ours=[count / _seconds(costs, node) for costs in found[TWO]],
            baseline=[count / _seconds(costs, node) for costs in found["one process"]],
            unit="rows/s",
            limit=Limit(1.6, least=True) if node == ALL and count == ROWS else None,
        )
        for node in (ALL, *NODES)
    ]
    notes = {
        f"{engine}, {count}": f"Processor seconds of these nodes, {count:,} rows, {engine}: "
        + f"{statistics.median(_seconds(costs, ALL, 'cpu_seconds') for costs in each):.0f}."
        for engine, each in found.items()
    }
    _report.publish(__file__, rows, quick=arguments.quick, notes=notes)


def _seconds(costs: Costs, node: str, kind: str = "seconds") -> float:
    return sum(costs[each][kind] for each in (NODES if node == ALL else (node,)))


if __name__ == "__main__":
    main()
