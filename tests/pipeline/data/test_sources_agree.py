"""The same table as CSV, TFRecord and Parquet: the same splits, the same transformed rows.

And what is passed through, missing values and all, reaches the files and does not end the Trainer.
The TFRecord's rows are the Parquet file's, so Transform and Trainer see them once.
"""

from __future__ import annotations

import csv
import functools
import pickle
import types
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

ROWS: list[dict[str, Any]] = [
    {
        "id": i,
        "zeros": (0.0, -0.0, 2.5, None)[i % 4],
        "whole": (0, 3, None, -2, 0)[i % 5],
        "flag": i % 2,
        "text": ("a", "", "0", None, "b c")[i % 5],
        "note": None if i % 3 else f"note {i}",
        "height": None if i % 4 else i / 8,
        "label": int(i % 3 == 0),
    }
    for i in range(60)
]
FEATURES = {
    "groups": [
        {"name": "numbers", "columns": ["zeros", "whole"], "scale": "z_score"},
        {"name": "flag", "columns": ["flag"], "encode": {"integer": {"size": 2}}},
        {"name": "text", "columns": ["text"], "encode": "vocabulary"},
    ],
    "label": {"column": "label", "kind": "binary"},
    "passthrough": ["id", "note", "height"],
}


def write_csv(file: Path) -> None:
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ROWS[0])
        writer.writeheader()
        writer.writerows(ROWS)


def write_parquet(file: Path) -> None:
    table = pa.Table.from_pylist(ROWS)
    place = table.schema.get_field_index("flag")
    pq.write_table(table.set_column(place, "flag", table["flag"].cast(pa.bool_())), file)


def write_tfrecord(file: Path) -> None:
    lists = {"zeros": "float_list", "height": "float_list"}
    lists |= {"text": "bytes_list", "note": "bytes_list"}
    with tf.io.TFRecordWriter(str(file)) as writer:
        for row in ROWS:
            example = tf.train.Example()
            for name, value in row.items():
                if value is None and row["id"] % 2:
                    continue  # as good as a feature without values
                values = getattr(example.features.feature[name], lists.get(name, "int64_list"))
                values.SetInParent()
                if value is not None:
                    values.value.append(value.encode() if isinstance(value, str) else value)
            writer.write(example.SerializeToString(deterministic=True))


@pytest.mark.slow(35)
def test_every_format_gives_the_same_rows(tmp_path):
    """Reference: TFX's own reader of the CSV; for "zeros", z-scores by hand in float64, to 1e-6."""
    writers = {
        "rows.csv": write_csv,
        "rows.parquet": write_parquet,
        "rows.tfrecord": write_tfrecord,
    }
    found = {}
    for name, write in writers.items():
        write(tmp_path / name)
        read_and_transform(tmp_path, name, transforms=name != "rows.tfrecord")
        if name != "rows.tfrecord":
            found[name] = transformed(tmp_path, f"{name}-out")
    assert found["rows.parquet"] == found["rows.csv"]
    for row in ROWS:
        outputs = found["rows.parquet"][row["id"]]
        assert outputs["note"] == ([] if row["note"] is None else [row["note"].encode()])
        assert outputs["height"] == ([] if row["height"] is None else [row["height"]])
    losses = {name: trained(tmp_path, name) for name in found}
    assert len(set(losses.values())) == 1, losses

    present = np.array([row["zeros"] for row in ROWS if row["zeros"] is not None], np.float64)
    for row in ROWS:
        x = row["zeros"]
        expected = 0.0 if x is None else (x - present.mean()) / present.std()
        outputs = found["rows.parquet"][row["id"]]
        assert outputs["packed_float"][0] == pytest.approx(expected, abs=1e-6)

    # CSV knows no empty text. Equal rows have equal hashes, and so the same split.
    raw = {name: raw_rows(tmp_path, f"{name}-raw") for name in writers}
    assert raw["rows.tfrecord"] == raw["rows.parquet"]
    empty = {row["id"] for row in ROWS if row["text"] == ""}
    assert empty
    for i, row in raw["rows.parquet"].items():
        assert (row == raw["rows.csv"][i]) == (i not in empty)


def batches(pipeline: Any, folder: Path, name: str, tfxio: Any) -> Any:
    """The file's rows as TFX's executor reads them if it is CSV, else as ours does."""
    import apache_beam as beam
    from tfx.components.example_gen.csv_example_gen import executor as csv_executor

    from components import ArrowExampleGen
    from components.arrow_example_gen.executor import open_source

    node = ArrowExampleGen(input_base=str(folder), tfrecord=name.endswith(".tfrecord"))
    properties = dict(node.exec_properties)
    if name == "rows.csv":
        read = csv_executor.Executor().GetInputSourceToExamplePTransform()
        examples = pipeline | read(properties, name)
        return examples | beam.Map(lambda each: each.SerializeToString()) | tfxio.BeamSource()
    source = open_source(properties, name)
    return pipeline | source.rows(pipeline | source.types()) | beam.Map(lambda rows: rows[1])


def pickled_rows(batch: pa.RecordBatch) -> list[bytes]:
    from components.arrow_example_gen.row_hash import row_hashes

    hashes = row_hashes(batch).tolist()
    rows = [{n: v or [] for n, v in sorted(row.items())} for row in batch.to_pylist()]
    return [pickle.dumps((row, each)) for row, each in zip(rows, hashes, strict=True)]


def raw_rows(folder: Path, prefix: str) -> dict[int, Any]:
    """Row id -> values and hash."""
    records = tf.data.TFRecordDataset([str(f) for f in folder.glob(f"{prefix}-*")])
    rows = [pickle.loads(record) for record in records.as_numpy_iterator()]
    return {row["id"][0]: (row, each) for row, each in rows}


def read_and_transform(folder: Path, name: str, *, transforms: bool) -> None:
    """Writes `NAME-raw`, and `NAME-out`, what Transform makes of it."""
    import apache_beam as beam
    import tensorflow_transform.beam as tft_beam
    from apache_beam.pvalue import AsSingleton
    from tensorflow_transform import DatasetMetadata
    from tensorflow_transform.tf_metadata import metadata_io
    from tfx_bsl.coders import example_coder
    from tfx_bsl.tfxio import tf_example_record

    from transform import preprocessing_fn

    dtypes = {"zeros": tf.float32, "height": tf.float32, "text": tf.string, "note": tf.string}
    spec = {name: tf.io.VarLenFeature(dtypes.get(name, tf.int64)) for name in ROWS[0]}
    raw = DatasetMetadata.from_feature_spec(spec)
    metadata_io.write_metadata(raw, str(folder / f"{name}-graph" / "metadata"))
    tfxio = tf_example_record.TFExampleBeamRecord(
        physical_format="inmem",
        schema=raw.schema,
        telemetry_descriptors=["test"],
    )
    function = functools.partial(preprocessing_fn, custom_config={"features": FEATURES, "code": ""})
    pipeline: Any = beam.Pipeline(runner="FnApiRunner")
    with (
        pipeline,
        tft_beam.Context(temp_dir=str(folder / f"{name}-temp"), use_deep_copy_optimization=True),
    ):
        rows, config = batches(pipeline, folder, name, tfxio), tfxio.TensorAdapterConfig()
        raw_out = beam.io.WriteToTFRecord(str(folder / f"{name}-raw"), num_shards=1)
        _ = rows | "Pickle" >> beam.FlatMap(pickled_rows) | "Raw" >> raw_out
        if not transforms:
            return
        graph = (rows, config) | tft_beam.AnalyzeDataset(function)
        _ = graph | tft_beam.WriteTransformFn(str(folder / f"{name}-graph"))
        analyzed: Any = ((rows, config), graph) | tft_beam.TransformDataset(
            output_record_batches=True
        )
        data, metadata = analyzed
        coder = AsSingleton(
            metadata.deferred_metadata
            | beam.Map(lambda m: example_coder.RecordBatchToExamplesEncoder(m.schema))
        )
        _ = (
            data
            | beam.FlatMap(lambda batch, coder: coder.encode(batch[0]), coder)
            | beam.io.WriteToTFRecord(str(folder / f"{name}-out"), num_shards=1)
        )


def trained(folder: Path, name: str) -> float:
    """The loss after two steps of the default model on what Transform made of the file."""
    from trainer_module import run_fn

    rows = str(folder / f"{name}-ordered")
    with tf.io.TFRecordWriter(rows) as writer:  # Beam's order is its own
        for _, record in sorted(written(folder, f"{name}-out").items()):
            writer.write(record)
    trainer = {"global_batch_size": 30, "steps": 2, "shuffle_buffer_rows": 0}
    result = run_fn(
        types.SimpleNamespace(
            train_files=[rows],
            eval_files=[rows],
            transform_output=str(folder / f"{name}-graph"),
            model_run_dir=str(folder / f"{name}-run"),
            serving_model_dir=str(folder / f"{name}-serving"),
            train_steps=0,
            custom_config={"trainer": trainer},
        )
    )
    assert result.steps == 2
    return result.metrics["loss"]


def written(folder: Path, prefix: str) -> dict[int, bytes]:
    """Row id -> Example."""
    records = tf.data.TFRecordDataset([str(f) for f in folder.glob(f"{prefix}-*")])
    examples = [(tf.train.Example.FromString(r), r) for r in records.as_numpy_iterator()]
    return {e.features.feature["id"].int64_list.value[0]: record for e, record in examples}


def transformed(folder: Path, prefix: str) -> dict[int, dict[str, list[Any]]]:
    """Row id -> output name -> values."""
    return {
        i: {
            name: list(getattr(feature, feature.WhichOneof("kind") or "int64_list").value)
            for name, feature in tf.train.Example.FromString(record).features.feature.items()
        }
        for i, record in written(folder, prefix).items()
    }
