"""100 vocabularies, against one `tft.compute_and_apply_vocabulary` per column.

String columns of up to 1,000 values each (Zipf's law) x 200,000 rows in the Transform executor,
without statistics, each run in a separate process. Both count with TFT's own vocabulary analyzer,
one per column: ours differs in stacking the columns before and the ids after.
"""

from __future__ import annotations

from benchmarks import _report
from benchmarks._result import Row
from benchmarks._transform import baseline, in_turns, ours
from benchmarks._transform_data import texts

COLUMNS, ROWS, VALUES = 100, 200_000, 1_000


def main() -> None:
    """Runs both in turns."""
    parser = _report.parser(__file__, rounds=3)
    parser.add_argument("--rows", type=int, default=ROWS, help="default: %(default)s")
    arguments = parser.parse_args()
    columns, rows = (3, 500) if arguments.quick else (COLUMNS, arguments.rows)
    data = texts(rows, columns, values=VALUES)
    group = {"name": "all", "columns": "c*", "encode": {"vocabulary": {"oov_buckets": 1}}}
    works = {"ours": ours(data, group), "per column": baseline(data, "vocabularies")}
    runs = in_turns(works, rounds=1 if arguments.quick else arguments.runs)
    row = Row(
        what=f"{columns} vocabularies, {rows:,} rows",
        baseline_name="tft.compute_and_apply_vocabulary per column",
        ours=[run.seconds for run in runs["ours"]],
        baseline=[run.seconds for run in runs["per column"]],
    )
    _report.publish(__file__, [row], quick=arguments.quick)


if __name__ == "__main__":
    main()
