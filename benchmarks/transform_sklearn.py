"""Rows per second of one core, against scikit-learn's StandardScaler and against Polars.

300 float columns x 80,000 rows, z_score. Rows are divided by the processor time of the whole
process (all threads, imports not counted), so that one that uses more cores gains nothing.

- Ours: the Transform executor without statistics, gzip-compressed tf.Examples to gzip-compressed
  tf.Examples: what TFX reads and writes, and what trains.
- scikit-learn: pandas reads Parquet, `StandardScaler().fit_transform` in memory, Parquet is
  written.
- Polars: its streaming engine reads Parquet twice, means and deviations as expressions, Parquet is
  written.

Ours is far slower, and two thirds of its time are two readings of tf.Examples, once to analyze
and once to transform (the table of `transform_wide.py`): 22 s each, where the same rows as
Parquet take 0.8 s. A row of 300 floats is 5.7 kB there, with the name of each column, in place of
1.2 kB. Five sixths of a reading are tfx_bsl's decoder (5.2 of 6.2 s at 20,000 rows), which fills
Arrow's lists value by value; decompression and checksums are less than a sixth. Writing the
packed output, one feature per row, takes 5 s. What is left is TensorFlow's graph, twice over the
rows, and some seconds that the executor needs whatever it does (2.5 s of them pack TFX's own
source for workers). In exchange the memory is flat, the same program runs on a cluster, and the
graph serves: neither of the other two does all three.
"""

from __future__ import annotations

import tempfile
import time

from benchmarks import _report
from benchmarks._measure import in_own_process
from benchmarks._result import Row
from benchmarks._transform import in_turns, ours
from benchmarks._transform_data import numbers, parquet

COLUMNS, ROWS = 300, 80_000
GROUP = {"name": "all", "columns": "c*", "scale": "z_score"}


def main() -> None:
    """Runs the three in turns."""
    parser = _report.parser(__file__, rounds=3)
    parser.add_argument("--rows", type=int, default=ROWS, help="default: %(default)s")
    arguments = parser.parse_args()
    columns, rows = (5, 500) if arguments.quick else (COLUMNS, arguments.rows)
    path = parquet(rows, columns)
    work = {"ours": ours(numbers(rows, columns), GROUP)}
    others = {"scikit-learn": scikit_learn, "Polars": polars}
    rate: dict[str, list[float]] = {name: [] for name in (*work, *others)}
    for _ in range(1 if arguments.quick else arguments.runs):
        rate["ours"].append(rows / in_turns(work, rounds=1)["ours"][0].cpu_seconds)
        for name, function in others.items():
            rate[name].append(rows / in_own_process(function, path))
            print(f"{name}: {rate[name][-1]:,.0f} rows/s of a core", flush=True)
    result = [
        Row(
            what=f"{columns} columns x {rows:,} rows, z_score, per core",
            baseline_name=f"{name}, Parquet",
            ours=rate["ours"],
            baseline=rate[name],
            unit="rows/s",
        )
        for name in others
    ]
    _report.publish(__file__, result, quick=arguments.quick)


def scikit_learn(path: str) -> float:
    """Processor seconds of scikit-learn."""
    import pandas as pd
    from sklearn.preprocessing import StandardScaler

    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        scaler = StandardScaler().set_output(transform="pandas")
        scaler.fit_transform(pd.read_parquet(path)).to_parquet(f"{folder}/scaled.parquet")
        return time.process_time() - started


def polars(path: str) -> float:
    """Processor seconds of Polars."""
    import polars as pl

    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        rows = pl.scan_parquet(path)
        everything = pl.all()
        found = rows.select(
            everything.mean().name.suffix(" mean"), everything.std(ddof=0).name.suffix(" std")
        ).collect(engine="streaming")
        scaled = [
            (pl.col(name) - found[f"{name} mean"][0]) / found[f"{name} std"][0]
            for name in rows.collect_schema().names()
        ]
        rows.select(scaled).sink_parquet(f"{folder}/scaled.parquet")
        return time.process_time() - started


if __name__ == "__main__":
    main()
