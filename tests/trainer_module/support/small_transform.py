"""A small Transform output made with plain TFT, without any of this project's own transform."""

from __future__ import annotations

import json
import types
from pathlib import Path

import numpy as np
import tensorflow as tf
from tfrecords import serialized

ROWS = 600
COMPANIES = ["Flash Cab", "Blue Diamond", "Chicago Taxi", "Sun Taxi"]


def raw_rows(rows: int = ROWS, seed: int = 0) -> list[dict]:
    """Raw rows whose tip is decided by fare and company, so that a small model can learn it."""
    random = np.random.default_rng(seed)
    made = []
    for number in range(rows):
        fare = float(random.gamma(2.0, 6.0))
        company = COMPANIES[random.integers(len(COMPANIES))]
        generous = (fare > 12) != (company in COMPANIES[:2])
        row = {
            "fare": [fare],
            "company": [company.encode()],
            "hour": [int(random.integers(24))],
            "tips": [fare * (0.3 if generous else 0.1)],
            "ride": [number] if number % 3 else [],
        }
        if random.uniform() < 0.1:
            row["company"] = []
        made.append(row)
    return made


def preprocessing_fn(inputs):
    """Plain TFT, without any of this project's own transform."""
    import tensorflow_transform as tft

    def dense(name, default):
        tensor = inputs[name]
        return tf.sparse.to_dense(
            tf.sparse.SparseTensor(tensor.indices, tensor.values, [tensor.dense_shape[0], 1]),
            default,
        )

    fare = dense("fare", 0.0)
    return {
        "fare_scaled": tft.scale_to_z_score(fare),
        "company_id": tft.compute_and_apply_vocabulary(dense("company", ""), num_oov_buckets=1),
        "hour_id": dense("hour", 0),
        "generous": tf.cast(dense("tips", 0.0) > 0.2 * fare, tf.int64),
    }


def packed_preprocessing_fn(inputs):
    """The same columns packed into one tensor per type, as this project's Transform gives them."""
    import tensorflow_transform as tft

    single = preprocessing_fn(inputs)
    filled = tf.sparse.SparseTensor(
        inputs["company"].indices,
        inputs["company"].values,
        [inputs["company"].dense_shape[0], 1],
    )
    company = tft.compute_and_apply_vocabulary(
        tf.sparse.to_dense(filled, ""), num_oov_buckets=1, vocab_filename="company"
    )
    return {
        "packed_float": single["fare_scaled"],
        "packed_int": tf.concat([company, single["hour_id"]], axis=1),
        "packed_missing": tf.zeros_like(single["hour_id"]),
        "generous": single["generous"],
        "ride": inputs["ride"],  # a key, passed through with its missing values
    }


def _column(name, kind, output, position, **sizes):
    return {
        "name": name,
        "source": name,
        "group": "all",
        "kind": kind,
        "output": output,
        "position": position,
        **sizes,
    }


PACKED_LAYOUT = {
    "format": "tfx-largebatch/feature_layout",
    "version": 1,
    "columns": [
        _column("fare", "z_score", "packed_float", 0),
        _column("company", "vocabulary", "packed_int", 0, vocabulary="company", extra_ids=1),
        _column("hour", "integer", "packed_int", 1, vocabulary_size=24),
    ],
    "missing": "packed_missing",
    "label": {"name": "generous", "kind": "binary", "classes": 2},
    "weight": None,
    "passthrough": ["ride"],
}


def run_transform(
    folder: Path, preprocessing_fn, *, pictures: bool = False
) -> types.SimpleNamespace:
    """Analyses the train rows and writes both splits as TFX's Transform does.

    A picture shows its company as a grey, with noise.
    """
    import apache_beam as beam
    import tensorflow_transform.beam as tft_beam
    from tensorflow_transform.beam.tft_beam_io import beam_metadata_io
    from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils
    from tfx_bsl.coders import example_coder
    from tfx_bsl.tfxio import tf_example_record

    spec = {
        "fare": tf.io.VarLenFeature(tf.float32),
        "company": tf.io.VarLenFeature(tf.string),
        "hour": tf.io.VarLenFeature(tf.int64),
        "tips": tf.io.VarLenFeature(tf.float32),
        "ride": tf.io.VarLenFeature(tf.int64),
    }
    raw = {"train": raw_rows(ROWS, 0), "eval": raw_rows(200, 1)}
    if pictures:
        spec["picture"] = tf.io.VarLenFeature(tf.string)
        random = np.random.default_rng(2)
        for row in [*raw["train"], *raw["eval"]]:
            grey = 60 * COMPANIES.index(row["company"][0].decode()) if row["company"] else 0
            pixels = random.integers(grey, grey + 60, (9, 7, 3)).astype(np.uint8)
            row["picture"] = [tf.io.encode_png(pixels).numpy()]
    schema = schema_utils.schema_from_feature_spec(spec)
    metadata = dataset_metadata.DatasetMetadata(schema)
    source = tf_example_record.TFExampleBeamRecord(["test"], schema=schema)
    config = source.TensorAdapterConfig()

    def encode(element):
        return example_coder.RecordBatchToExamplesEncoder().encode(element[0])

    with (
        beam.Pipeline(runner="FnApiRunner") as pipeline,
        tft_beam.Context(temp_dir=str(folder / "tmp")),
    ):
        batches = {
            split: pipeline
            | f"create {split}" >> beam.Create([serialized(row) for row in rows])
            | f"read {split}" >> source.BeamSource()
            for split, rows in raw.items()
        }
        graph = (batches["train"], config) | tft_beam.AnalyzeDataset(preprocessing_fn)
        _ = graph | tft_beam.WriteTransformFn(str(folder / "graph"))
        _ = metadata | beam_metadata_io.WriteMetadata(str(folder / "graph" / "metadata"), pipeline)
        for split, batch in batches.items():
            transform = tft_beam.TransformDataset(output_record_batches=True)
            data, _ = ((batch, config), graph) | f"transform {split}" >> transform
            write = beam.io.WriteToTFRecord(
                str(folder / split / "examples"), file_name_suffix=".gz", num_shards=2
            )
            _ = data | f"encode {split}" >> beam.FlatMap(encode) | f"write {split}" >> write
    if pictures:  # which ParquetTransform computes
        statistics = {"picture": {"mean": [120.0] * 3, "variance": [3600.0] * 3}}
        (folder / "graph" / "image_statistics.json").write_text(json.dumps(statistics))
    return types.SimpleNamespace(
        graph=str(folder / "graph"),
        raw=raw,
        train=str(folder / "train" / "examples*"),
        eval=str(folder / "eval" / "examples*"),
    )
