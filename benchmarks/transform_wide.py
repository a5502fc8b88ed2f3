"""Normalising 300 float columns, against one TFT call per column and against reading and writing.

All in the Transform executor of TFX, from gzip-compressed tf.Examples with a value in every row to
gzip-compressed tf.Examples, each run in a separate process (imports do not count). The two write
the same z-scores.

- 20,000 rows with TFX's defaults (statistics and materialisation on), against
  `tft.scale_to_z_score` per column. The rows without statistics, in processor time, say whose this
  gain is. It is stacking, which one line of TFT does as well
  (`tft.scale_to_z_score(tf.concat(columns, 1), elementwise=True)`, the same z-scores and the same
  packed output), and TFX's statistics of the output, which a packed output makes cheap and our
  pipeline turns off. Our analyzers have no part in it: they take about as long as stacked TFT, and
  what they add is what is not in these data, NaN and missing values that enter no statistic.
  `--only stacked-tft` and `--only per-column-alone` measure the two without statistics.
- 80,000 rows without statistics, against a `preprocessing_fn` that only puts the same columns side
  by side into the same packed output: what reading and writing cost. It has no analysis, so the
  executor reads the data once for it, and twice for ours.
- The same with columns that may be missing in a row (SparseTensors), as our pipeline has them.
- 200,000 rows in columns: the pipeline's Transform, from Parquet to Parquet, against TFX's executor
  with stacked TFT on the same rows as tf.Examples, in processor time.
- Where the time of the executor on tf.Examples goes: the data read once by Beam (the executor's
  source, and tfx_bsl's source of Parquet), and the packed output encoded and written, without
  TensorFlow in between. The executor reads twice and writes once: most of its time.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

import numpy as np

from benchmarks import _report
from benchmarks._measure import in_own_process
from benchmarks._result import Limit, Row
from benchmarks._transform import (
    BEAM_ARGS,
    baseline,
    check_same_output,
    in_turns,
    ours,
)
from benchmarks._transform_data import number_chunks, numbers, parquet, parquet_examples

COLUMNS = 300
SMALL, LARGE, LARGEST = 20_000, 80_000, 200_000
PARTS = (
    *("per-column", "stacked-tft", "per-column-alone", "stacking", "optional", "parquet", "alone"),
)
PER_COLUMN = "one_call_per_column"
TFT = {
    PER_COLUMN: "tft.scale_to_z_score per column",
    "stacked_z_score": "tft.scale_to_z_score(elementwise=True), stacked",
}
GROUP = {"name": "all", "columns": "c*", "scale": "z_score"}


def main() -> None:
    """Measures all or one of the parts."""
    parser = _report.parser(__file__, rounds=3)
    parser.add_argument("--only", choices=PARTS, help="one part of it")
    arguments = parser.parse_args()
    rounds = 1 if arguments.quick else arguments.runs
    columns, small, large = (10, 200, 300) if arguments.quick else (COLUMNS, SMALL, LARGE)
    chosen = [arguments.only] if arguments.only else PARTS
    rows: list[Row] = []
    if "per-column" in chosen:
        rows.append(per_column(small, columns, rounds))
    for part, name in (("stacked-tft", "stacked_z_score"), ("per-column-alone", PER_COLUMN)):
        if part in chosen:
            rows.append(without_statistics(name, small, columns, rounds))
    if "stacking" in chosen:
        rows.append(stacking(large, columns, rounds, optional=False))
    if "optional" in chosen:
        rows.append(stacking(large, columns, rounds, optional=True))
    if "parquet" in chosen:
        rows.append(in_columns(large if arguments.quick else LARGEST, columns, rounds))
    if "alone" in chosen:
        rows += alone(large, columns, rounds)
    _report.publish(__file__, rows, quick=arguments.quick)


def per_column(rows: int, columns: int, rounds: int) -> Row:
    """One analyzer for all against one for each."""
    data = numbers(rows, columns)
    works = {
        "ours": ours(data, GROUP, statistics=True),
        "per column": baseline(data, PER_COLUMN, scale="z_score", statistics=True),
    }
    runs = in_turns(works, rounds=rounds)
    check_same_output([*runs["ours"], *runs["per column"]], tolerance=1e-4)
    return Row(
        what=f"{columns} columns x {rows:,} rows, TFX's defaults",
        baseline_name=TFT[PER_COLUMN],
        ours=[run.seconds for run in runs["ours"]],
        baseline=[run.seconds for run in runs["per column"]],
        limit=Limit(0.18),
    )


def without_statistics(name: str, rows: int, columns: int, rounds: int) -> Row:
    """Against TFT's own analyzers, one for all or one for each; neither writes statistics.

    In processor time: the difference to stacked TFT is less than what other programs on a machine
    add to the time that passes.
    """
    data = numbers(rows, columns)
    works = {"ours": ours(data, GROUP), name: baseline(data, name, scale="z_score")}
    runs = in_turns(works, rounds=rounds)
    check_same_output([*runs["ours"], *runs[name]], tolerance=1e-4)
    return Row(
        what=f"{columns} columns x {rows:,} rows, without statistics, processor time",
        baseline_name=TFT[name],
        ours=[run.cpu_seconds for run in runs["ours"]],
        baseline=[run.cpu_seconds for run in runs[name]],
    )


def stacking(rows: int, columns: int, rounds: int, *, optional: bool) -> Row:
    """Against no statistic at all."""
    data = numbers(rows, columns, optional=optional)
    works = {"ours": ours(data, GROUP), "stacking": baseline(data, "stacked")}
    runs = in_turns(works, rounds=rounds)
    return Row(
        what=f"{columns} columns x {rows:,} rows{', each may be missing' * optional}",
        baseline_name="stacking alone",
        ours=[run.seconds for run in runs["ours"]],
        baseline=[run.seconds for run in runs["stacking"]],
        limit=None if optional else Limit(1.25),
    )


def in_columns(rows: int, columns: int, rounds: int) -> Row:
    """From Parquet to Parquet, against what TFT does best with tf.Examples."""
    works = {
        "ours, Parquet": ours(parquet_examples(rows, columns), GROUP)._replace(columns=True),
        "stacked": baseline(numbers(rows, columns), "stacked_z_score", scale="z_score"),
    }
    runs = in_turns(works, rounds=rounds)
    check_same_output([*runs["ours, Parquet"], *runs["stacked"]], tolerance=1e-4)
    return Row(
        what=f"{columns} columns x {rows:,} rows, Parquet, processor time",
        baseline_name="stacked TFT on tf.Examples",
        ours=[run.cpu_seconds for run in runs["ours, Parquet"]],
        baseline=[run.cpu_seconds for run in runs["stacked"]],
        limit=Limit(0.2),
    )


def alone(rows: int, columns: int, rounds: int) -> list[Row]:
    """Reading and writing as shares of the whole."""
    data, table = numbers(rows, columns), parquet(rows, columns)
    parts: dict[str, Any] = {
        "reading tf.Examples once": (read_examples, data),
        "reading Parquet once": (read_parquet, table),
        "writing the packed output": (write_packed, rows, columns),
    }
    found: dict[str, list[float]] = {part: [] for part in parts}
    whole = []
    for _ in range(rounds):
        whole.append(in_turns({"ours": ours(data, GROUP)}, rounds=1)["ours"][0].seconds)
        for part, (function, *given) in parts.items():
            found[part].append(in_own_process(function, *given))
            print(f"{part}: {found[part][-1]:.1f} s", flush=True)
    return [
        Row(
            what=f"{part}, {columns} x {rows:,}",
            baseline_name="all of ours",
            ours=seconds,
            baseline=whole,
        )
        for part, seconds in found.items()
    ]


def read_examples(folder: str) -> float:
    """Seconds to decode every row into Arrow, as the executor does."""
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tfx_bsl.tfxio import tf_example_record

    with open(f"{folder}/schema/schema.pbtxt", encoding="utf-8") as stream:
        schema = text_format.Parse(stream.read(), schema_pb2.Schema())
    source = tf_example_record.TFExampleRecord(
        f"{folder}/Split-train/*", schema=schema, telemetry_descriptors=["benchmark"]
    )
    return _read(source)


def read_parquet(path: str) -> float:
    """Seconds to read every row into Arrow."""
    from tfx_bsl.tfxio import parquet_tfxio

    return _read(parquet_tfxio.ParquetTFXIO(path, telemetry_descriptors=["benchmark"]))


def _read(source: Any) -> float:
    import apache_beam as beam

    started = time.perf_counter()
    with beam.Pipeline(argv=list(BEAM_ARGS)) as pipeline:
        _ = pipeline | source.BeamSource() | beam.Map(lambda batch: batch.num_rows)
    return time.perf_counter() - started


def write_packed(rows: int, columns: int) -> float:
    """Seconds to encode rows of one vector and to write them, as the executor does."""
    import apache_beam as beam
    import pyarrow as pa
    from tfx_bsl.coders import example_coder

    batch_rows = 1000  # about what TFT's batches have
    (chunk,) = number_chunks(min(batch_rows, rows), columns, 0.0)
    offsets = np.arange(0, chunk.size + 1, columns)
    packed = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(chunk.ravel()))
    batch = pa.RecordBatch.from_arrays([packed], ["packed_float"])
    encoder = example_coder.RecordBatchToExamplesEncoder()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, beam.Pipeline(argv=list(BEAM_ARGS)) as pipeline:
        _ = (
            pipeline
            | beam.Create(range(-(-rows // batch_rows)), reshuffle=False)
            | beam.FlatMap(lambda _: encoder.encode(batch))
            | beam.io.WriteToTFRecord(f"{folder}/rows", file_name_suffix=".gz")
        )
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
