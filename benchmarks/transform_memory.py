"""Peak memory of Transform as the rows grow: 1 and 5 million against 0.2 million.

20 float columns (10 z_score, 5 robust, 5 gaussian) in the Transform executor without statistics,
each run in a separate process, whose high-water mark of resident memory (`VmHWM`) is compared:
with TensorFlow, Beam and TFX in it, as it counts on a worker. The rows are 0.1 million different
ones in a file, and links to that file.
"""

from __future__ import annotations

from benchmarks import _report
from benchmarks._result import memory_growth
from benchmarks._transform import in_turns, ours
from benchmarks._transform_data import numbers

COLUMNS = 20
FILE_ROWS = 100_000
SIZES = (200_000, 1_000_000, 5_000_000)
GROUPS = (
    {"name": "z_score", "columns": "c000*", "scale": "z_score"},
    {"name": "robust", "columns": [f"c001{i}" for i in range(5)], "scale": "robust"},
    {"name": "gaussian", "columns": [f"c001{i}" for i in range(5, 10)], "scale": "gaussian"},
)


def main() -> None:
    """Takes all sizes, up and down."""
    parser = _report.parser(__file__, rounds=3)
    parser.add_argument(
        "--rows", type=int, nargs="+", default=SIZES, help="the first is compared with"
    )
    arguments = parser.parse_args()
    file_rows, sizes = (100, (200, 400)) if arguments.quick else (FILE_ROWS, arguments.rows)
    works = {
        f"{size:,} rows": ours(numbers(file_rows, COLUMNS, copies=size // file_rows), *GROUPS)
        for size in sizes
    }
    runs = in_turns(works, rounds=1 if arguments.quick else arguments.runs)
    peaks = {
        size: [run.peak for run in found] for size, found in zip(sizes, runs.values(), strict=True)
    }
    rows = memory_growth(f"peak memory, {{rows}} x {COLUMNS} columns", peaks)
    _report.publish(__file__, rows, quick=arguments.quick)


if __name__ == "__main__":
    main()
