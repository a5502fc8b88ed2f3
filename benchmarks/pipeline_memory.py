"""Peak memory of each node as the rows grow: 1 and 5 million against 0.2 million.

One process runs the taxi pipeline from a CSV to the Evaluator, with Beam in memory and one epoch of
batches of 4,096 rows. What is compared is the most resident memory of that process while a node
runs (the kernel's high-water mark `VmHWM`, reset when the node starts): with TensorFlow, Beam and
TFX in it, and with what earlier nodes have left, as it counts on a user's machine. The rows are
those of the CSV in the tfx wheel, over and over.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks import _report
from benchmarks._node_costs import node_costs, write_taxi_csv
from benchmarks._result import memory_growth

SIZES = (200_000, 1_000_000, 5_000_000)
NODES = (
    *("ArrowExampleGen", "StatisticsGen", "Transform"),
    *("NormalizationValidator", "Trainer", "Evaluator"),
)


def main() -> None:
    """Runs the pipeline with each number of rows, up and down."""
    parser = _report.parser(__file__, rounds=1)
    parser.add_argument(
        "--rows", type=int, nargs="+", default=SIZES, help="the first is compared with"
    )
    arguments = parser.parse_args()
    sizes, rounds = ((7_000, 8_000), 1) if arguments.quick else (arguments.rows, arguments.runs)
    peaks: dict[str, dict[int, list[float]]] = {
        node: {size: [] for size in sizes} for node in NODES
    }
    for index in range(rounds):
        for size in sizes if index % 2 == 0 else reversed(sizes):
            with tempfile.TemporaryDirectory() as folder:
                write_taxi_csv(Path(folder) / "taxi.csv", size)
                costs = node_costs(
                    f"data.path={folder}/taxi.csv",
                    f"output.folder={folder}/output",
                    "training.epochs=1",
                    "training.global_batch_size=4096",
                    "training.micro_batch_size=4096",
                )
            for node in NODES:
                peaks[node][size].append(costs[node]["peak"])
            shown = ", ".join(f"{node} {costs[node]['peak'] / 1e6:,.0f} MB" for node in NODES)
            print(f"{size:,} rows: {shown}", flush=True)
    rows = [
        row
        for node, by_size in peaks.items()
        for row in memory_growth(f"{node}, {{rows}}", by_size)
    ]
    _report.publish(__file__, rows, quick=arguments.quick)


if __name__ == "__main__":
    main()
