"""Does the time per column grow with the number of columns?

z_score of 30 to 3,000 float columns x 5,000 rows in the Transform executor, without statistics,
each run in a separate process; seconds per column against those of the next smaller number of
columns. What the executor needs whatever it does (some seconds) is shared by more columns each
time: the ratio would be 1 where only the columns counted, and above 1 where their number itself
cost.
"""

from __future__ import annotations

import itertools

from benchmarks import _report
from benchmarks._result import Limit, Row
from benchmarks._transform import in_turns, ours
from benchmarks._transform_data import numbers

COLUMNS = (30, 100, 300, 1_000, 3_000)
ROWS = 5_000
GROUP = {"name": "all", "columns": "c*", "scale": "z_score"}


def main() -> None:
    """Takes all widths, up and down."""
    arguments = _report.parser(__file__, rounds=3).parse_args()
    widths, rows = ((3, 10), 100) if arguments.quick else (COLUMNS, ROWS)
    works = {f"{width:,} columns": ours(numbers(rows, width), GROUP) for width in widths}
    runs = in_turns(works, rounds=1 if arguments.quick else arguments.runs)
    per_column = {
        width: [run.seconds / width for run in runs[f"{width:,} columns"]] for width in widths
    }
    result = [
        Row(
            what=f"seconds per column, {wide:,} columns x {rows:,} rows",
            baseline_name=f"{narrow:,} columns",
            ours=per_column[wide],
            baseline=per_column[narrow],
            limit=Limit(1),
        )
        for narrow, wide in itertools.pairwise(widths)
    ]
    _report.publish(__file__, result, quick=arguments.quick)


if __name__ == "__main__":
    main()
