"""Reading Transform's packed output into training, against one feature per column.

300 scaled float columns x 20,000 rows, written by the Transform executor from the same data, once
packed and once as the usual one feature per column (`packed: false`), both gzip-compressed; read
by the trainer's own input pipeline in batches of 1,024 rows, up to the matrix that a first layer
takes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf
import tensorflow_transform as tft

from benchmarks import _report
from benchmarks._measure import Contender, in_own_process, seconds_per_run
from benchmarks._result import Limit, Row
from benchmarks._transform import execute, ours
from benchmarks._transform_data import names, numbers
from trainer_module.data.input_pipeline import Examples

COLUMNS, ROWS = 300, 20_000
BATCH_ROWS = 1024


def main() -> None:
    """Writes both and reads them in turns."""
    arguments = _report.parser(__file__, rounds=9).parse_args()
    columns, rows = (5, 300) if arguments.quick else (COLUMNS, ROWS)
    with tempfile.TemporaryDirectory() as folder:
        contenders = {
            name: Contender(passes(written(f"{folder}/{name}", rows, columns, packed)))
            for name, packed in (("packed", True), ("per column", False))
        }
        seconds = seconds_per_run(contenders, rounds=1 if arguments.quick else arguments.runs)
    rate = {name: [rows / s for s in found] for name, found in seconds.items()}
    row = Row(
        what=f"reading {columns} columns, batches of {BATCH_ROWS:,} rows",
        baseline_name="one feature per column",
        ours=rate["packed"],
        baseline=rate["per column"],
        unit="rows/s",
        limit=Limit(3, least=True),
    )
    _report.publish(__file__, [row], quick=arguments.quick)


def written(folder: str, rows: int, columns: int, packed: bool) -> Examples:
    """Runs Transform and opens its output; the last column is the label."""
    data = numbers(rows, columns + 1)
    label = names(columns + 1)[-1]
    group = {"name": "all", "columns": "others", "scale": "z_score"}
    spec = {"packed": packed, "label": {"column": label, "kind": "regression"}}
    in_own_process(execute, ours(data, group, **spec)._replace(keep=folder))
    files = tuple(map(str, sorted(Path(folder, "examples", "Split-train").glob("*.gz"))))
    return Examples(
        files, tft.TFTransformOutput(f"{folder}/graph").transformed_feature_spec(), label
    )


def passes(examples: Examples) -> Callable[[int], None]:
    """Returns a function that reads all rows so many times."""
    dataset = examples.batches(BATCH_ROWS).map(matrix, num_parallel_calls=tf.data.AUTOTUNE)

    def run(times: int) -> None:
        for _ in range(times):
            for _batch in dataset:
                pass

    return run


def matrix(features: dict[str, tf.Tensor], label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Features side by side; a packed one is that already."""
    return tf.concat([features[name] for name in sorted(features)], axis=1), label


if __name__ == "__main__":
    main()
