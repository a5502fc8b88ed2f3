"""Transformed examples as Transform writes them, made by plain tensorflow_transform."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

ROWS = {"train": 3000, "eval": 1500}
MISSING_SHARE = 0.2

#: Bits of the missing mask are positions in this list.
LAYOUT_COLUMNS = [
    ("fare", "fare", "z_score", "packed_float", 0, None),
    ("company", "company", "integer", "packed_int", 0, 5),
    ("flat", "flat", "z_score", "packed_float", 1, None),
    ("share", "share", "min_max", "packed_float", 2, None),
    ("fare_missing", "fare", "missing_indicator", "packed_float", 3, None),
]


class Transformed(NamedTuple):
    """URIs of the artifacts."""

    graph: str
    examples: str

    def read(self, split: str, feature: str) -> list[list[float]]:
        """The values of a feature, row by row, read with nothing of ours."""
        import tensorflow as tf

        files = sorted(tf.io.gfile.glob(f"{self.examples}/Split-{split}/*"))
        rows = []
        for record in tf.data.TFRecordDataset(files, "GZIP").as_numpy_iterator():
            values = tf.train.Example.FromString(record).features.feature[feature]
            rows.append(list(values.float_list.value or values.int64_list.value))
        return rows


def _layout() -> str:
    keys = ("name", "source", "kind", "output", "position", "vocabulary_size")
    rest = {"group": "g", "vocabulary": None, "extra_ids": 0}
    columns = [{**dict(zip(keys, c, strict=True)), **rest} for c in LAYOUT_COLUMNS]
    for column in columns:
        kind = column["kind"]
        column["judged_as"] = kind if kind in ("z_score", "min_max") else None
        column["is_aspect"] = kind == "missing_indicator"
    return json.dumps(
        {
            "format": "tfx-largebatch/feature_layout",
            "version": 1,
            "columns": columns,
            "missing": "packed_missing",
            "label": {"name": "tipped", "kind": "binary", "classes": 2},
            "weight": None,
        }
    )


def raw_rows(split: str) -> dict[str, np.ndarray]:
    rows = ROWS[split]
    rng = np.random.default_rng(len(split))
    return {
        "fare": rng.lognormal(2.0, 0.7, rows).astype(np.float32),
        "fare_is_missing": (rng.random(rows) < MISSING_SHARE).astype(np.int64),
        "flat": np.full(rows, 7.5, np.float32),
        "share": rng.uniform(-3, 9, rows).astype(np.float32),
        "company": rng.integers(0, 5, rows),
        "tipped": rng.integers(0, 2, rows),
    }


def packed(inputs):
    """A preprocessing_fn that packs as ours does: missing values are imputed and masked."""
    import tensorflow as tf
    import tensorflow_transform as tft

    fare = inputs["fare"]
    missing = inputs["fare_is_missing"]
    present = tf.boolean_mask(fare, missing == 0)
    mean, variance = tft.mean(present), tft.var(present)
    fare = tf.where(missing == 1, tf.zeros_like(fare), (fare - mean) / tf.sqrt(variance))
    floats = [
        fare,
        tft.scale_to_z_score(inputs["flat"]),
        tft.scale_to_0_1(inputs["share"]),
        tf.cast(missing, tf.float32),
    ]
    indicator = 1 << 4  # the bit of fare_missing itself
    return {
        "packed_float": tf.stack(floats, axis=1),
        "packed_int": tf.expand_dims(inputs["company"], 1),
        "packed_missing": tf.expand_dims(missing * (1 | indicator), 1),
        "tipped": tf.expand_dims(inputs["tipped"], 1),
    }


def unpacked(inputs):
    """Anybody's preprocessing_fn: a scalar, a vector, a sparse feature, no layout."""
    import tensorflow as tf
    import tensorflow_transform as tft

    fare, missing = inputs["fare"], inputs["fare_is_missing"]
    where = tf.where(missing == 0)
    sparse = tf.SparseTensor(
        tf.concat([where, tf.zeros_like(where)], axis=1),
        tf.gather_nd(fare, where),
        tf.stack([tf.size(fare, out_type=tf.int64), 1]),
    )
    pair = tf.stack([inputs["share"], inputs["share"] * 2.0], axis=1)
    return {
        "fare": tft.scale_to_z_score(fare),
        "pair": tft.scale_to_0_1(pair, elementwise=True),
        "sparse": sparse,
        "company": inputs["company"],
        "tipped": inputs["tipped"],
    }


def run_transform(preprocessing_fn, folder: Path) -> Transformed:
    """Analyses train, transforms every split, and writes what TFX's Transform would."""
    import apache_beam as beam
    import tensorflow as tf
    import tensorflow_transform.beam as tft_beam
    from tensorflow_transform.tf_metadata.dataset_metadata import DatasetMetadata

    raw = {split: raw_rows(split) for split in ROWS}
    spec = {
        name: tf.io.FixedLenFeature([], tf.float32 if v.dtype == np.float32 else tf.int64)
        for name, v in raw["train"].items()
    }
    metadata = DatasetMetadata.from_feature_spec(spec)
    graph = str(folder / "graph")
    with (
        beam.Pipeline("FnApiRunner") as pipeline,
        tft_beam.Context(temp_dir=str(folder / "tmp")),
    ):
        rows = {
            split: pipeline
            | f"Rows[{split}]"
            >> beam.Create([{k: v[i] for k, v in columns.items()} for i in range(ROWS[split])])
            for split, columns in raw.items()
        }
        transform_fn = (rows["train"], metadata) | tft_beam.AnalyzeDataset(preprocessing_fn)
        _ = transform_fn | tft_beam.WriteTransformFn(graph)
        for split in ROWS:
            dataset = ((rows[split], metadata), transform_fn)
            _ = (
                dataset
                | f"Transform[{split}]" >> tft_beam.TransformDataset()
                | f"Encode[{split}]" >> tft_beam.EncodeTransformedDataset()
                | f"Write[{split}]"
                >> beam.io.WriteToTFRecord(
                    str(folder / "examples" / f"Split-{split}" / "transformed_examples"),
                    file_name_suffix=".gz",
                    num_shards=3,
                )
            )
    return Transformed(graph, str(folder / "examples"))


@pytest.fixture(scope="session")
def packed_examples(tmp_path_factory) -> Transformed:
    transformed = run_transform(packed, tmp_path_factory.mktemp("packed"))
    assets = Path(transformed.graph, "transform_fn", "assets")
    assets.mkdir(exist_ok=True)
    (assets / "feature_layout").write_text(_layout())
    return transformed


@pytest.fixture(scope="session")
def unpacked_examples(tmp_path_factory) -> Transformed:
    return run_transform(unpacked, tmp_path_factory.mktemp("unpacked"))
