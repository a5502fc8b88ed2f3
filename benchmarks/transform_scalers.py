"""Each scaler on 300 columns, against one TFT call per column.

20,000 rows in the Transform executor with TFX's defaults (statistics and materialisation on), each
run in a separate process. The baselines:

- min_max: `tft.scale_to_0_1`, which writes the same numbers.
- robust: `tft.quantiles` with the same error of ranks (0.001), then `(x - median) / (q3 - q1)`: the
  same up to that error.
- gaussian: `tft.scale_to_gaussian`, which fits Tukey's HH distribution by moments: other numbers
  for the same wish. Ours maps ranks to normal scores.
- impute, clip and z_score on columns with 5 % missing: 0 in their place, `tf.clip_by_value`, then
  `tft.scale_to_z_score`, as TFX's examples do. Ours imputes the mean, which would cost TFT a second
  pass over the data.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from benchmarks import _report
from benchmarks._result import Limit, Row
from benchmarks._transform import baseline, check_same_output, in_turns, ours
from benchmarks._transform_baselines import HIGH, LOW
from benchmarks._transform_data import numbers

COLUMNS, ROWS = 300, 20_000


class Scaler(NamedTuple):
    """Ours and what it is compared with.

    Attributes:
        group: Our chain.
        theirs: Of the baseline's scales.
        called: What the table calls the baseline.
        holes: Share of missing values.
        tolerance: Largest difference of an output, None: they are not the same.
    """

    group: dict[str, Any]
    theirs: str
    called: str
    holes: float = 0.0
    tolerance: float | None = None


SCALERS = {
    "min_max": Scaler({"scale": "min_max"}, "min_max", "tft.scale_to_0_1", tolerance=1e-5),
    "robust": Scaler({"scale": "robust"}, "robust", "tft.quantiles", tolerance=0.05),
    "gaussian": Scaler({"scale": "gaussian"}, "gaussian", "tft.scale_to_gaussian"),
    "impute + clip + z_score": Scaler(
        {"impute": "mean", "clip": {"min": LOW, "max": HIGH}, "scale": "z_score"},
        "clip_z_score",
        "0, tf.clip_by_value, tft.scale_to_z_score",
        holes=0.05,
    ),
}


def main() -> None:
    """Measures all or one of the scalers."""
    parser = _report.parser(__file__, rounds=3)
    parser.add_argument("--only", choices=SCALERS, help="one of them")
    parser.add_argument("--rows", type=int, default=ROWS, help="default: %(default)s")
    arguments = parser.parse_args()
    columns, rows = (5, 500) if arguments.quick else (COLUMNS, arguments.rows)
    rounds = 1 if arguments.quick else arguments.runs
    result = []
    for name in [arguments.only] if arguments.only else SCALERS:
        scaler = SCALERS[name]
        data = numbers(rows, columns, holes=scaler.holes)
        works = {
            f"{name}, ours": ours(
                data, {"name": "all", "columns": "c*", **scaler.group}, statistics=True
            ),
            f"{name}, per column": baseline(
                data, "one_call_per_column", scale=scaler.theirs, statistics=True
            ),
        }
        mine, theirs = in_turns(works, rounds=rounds).values()
        if scaler.tolerance is not None:
            check_same_output([*mine, *theirs], tolerance=scaler.tolerance)
        result.append(
            Row(
                what=f"{name}, {columns} columns x {rows:,} rows",
                baseline_name=f"{scaler.called} per column",
                ours=[run.seconds for run in mine],
                baseline=[run.seconds for run in theirs],
                limit=Limit(0.3),
            )
        )
    _report.publish(__file__, result, quick=arguments.quick)


if __name__ == "__main__":
    main()
