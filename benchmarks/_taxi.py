"""What the taxi example's Transform wrote: the data of the benchmarks that need real data."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf
import tensorflow_transform as tft
from tfx_bsl.coders import example_coder

from trainer_module import FeatureLayout
from trainer_module.data.input_pipeline import Examples
from trainer_module.model.data_context import TransformedData

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "output" / "benchmarks"


class Taxi(NamedTuple):
    """Transform's output: its graph's folder, and the files of its splits."""

    graph: str
    train: str
    eval: str


def taxi() -> Taxi:
    """Runs the taxi example into output/benchmarks; nodes that ran before come from its cache."""
    folder = FOLDER / "taxi"
    command = [sys.executable, "-m", "pipeline", "run"]
    command += ["--config", str(ROOT / "examples" / "taxi" / "pipeline.yaml")]
    command += ["--set", f"output.folder={folder}", "--set", "training.epochs=3"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "TF_USE_LEGACY_KERAS": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}")
    transform = folder / "artifacts" / "Transform"
    # TFX names a run's folder by its number.
    latest = max((path.name for path in (transform / "transform_graph").iterdir()), key=int)
    splits = transform / "transformed_examples" / latest
    return Taxi(
        graph=str(transform / "transform_graph" / latest),
        train=str(splits / "Split-train" / "*.parquet"),
        eval=str(splits / "Split-eval" / "*.parquet"),
    )


def repeated(pattern: str, *, times: int, files: int, folder: Path) -> tuple[str, ...]:
    """Writes the rows so many times over into so many files, Parquet or gzipped TFRecords."""
    folder.mkdir(parents=True, exist_ok=True)
    suffix = Path(pattern).suffix
    paths = [str(folder / f"rows-{i:05d}-of-{files:05d}{suffix}") for i in range(files)]
    if suffix == ".parquet":
        table = pa.concat_tables([read_rows(pattern)] * times)
        rows = -(-table.num_rows // files)
        for i, path in enumerate(paths):
            part = table.slice(i * rows, rows)
            pq.write_table(part, path, row_group_size=2**16, use_compliant_nested_type=False)
        return tuple(paths)
    writers = [tf.io.TFRecordWriter(path, "GZIP") for path in paths]
    rows = list(tf.data.TFRecordDataset(tf.io.gfile.glob(pattern), "GZIP").as_numpy_iterator())
    for i, row in enumerate(rows * times):
        writers[i % files].write(row)
    for writer in writers:
        writer.close()
    return tuple(paths)


def read_rows(pattern: str) -> pa.Table:
    """Reads the rows of Parquet files."""
    return pa.concat_tables(pq.read_table(file) for file in sorted(tf.io.gfile.glob(pattern)))


def as_tf_examples(source: Taxi, folder: Path) -> str:
    """Writes the train rows as TFX's Transform does, in gzipped TFRecords; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = str(folder / "train.gz")
    schema = tft.TFTransformOutput(source.graph).transformed_metadata.schema
    encoder = example_coder.RecordBatchToExamplesEncoder(schema)
    with tf.io.TFRecordWriter(path, "GZIP") as writer:
        for batch in read_rows(source.train).to_batches():
            for row in encoder.encode(batch):
                writer.write(row)
    return path


def transformed(
    source: Taxi, files: tuple[str, ...], eval_files: tuple[str, ...] = ()
) -> TransformedData:
    """The files as `run_fn` opens them."""
    output = tft.TFTransformOutput(source.graph)
    layout = FeatureLayout.from_transform_graph(source.graph)
    assert layout is not None
    assert layout.label is not None
    spec = {k: v for k, v in output.transformed_feature_spec().items() if k != layout.missing}
    return TransformedData(output, layout, Examples(files, spec, layout.label.name), eval_files)
