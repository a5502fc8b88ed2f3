"""Parquet examples as tf.Examples. Reference: the table that the test writes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf
from tfx.components.util import examples_utils, tfxio_utils
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, standard_artifacts

from components.tf_examples.component import Executor

ROWS = [
    {"fare": [1.5], "count": [2**40], "words": [b"a", b"\xff"]},
    {"fare": [], "count": [], "words": []},
    {"fare": [-0.0], "count": [0], "words": [b""]},
]
TYPES = {"fare": pa.float32(), "count": pa.int64(), "words": pa.large_binary()}
PARQUET = example_gen_pb2.FORMAT_PARQUET  # pyright: ignore[reportAttributeAccessIssue]
TF_EXAMPLE = example_gen_pb2.FORMAT_TF_EXAMPLE  # pyright: ignore[reportAttributeAccessIssue]


def test_every_split_has_its_rows_and_missing_values_are_absent(tmp_path: Path) -> None:
    given, written = standard_artifacts.Examples(), standard_artifacts.Examples()
    given.uri, written.uri = str(tmp_path / "parquet"), str(tmp_path / "tf")
    given.split_names = artifact_utils.encode_split_names(["train", "eval"])
    given.span, given.version = 7, 2
    examples_utils.set_payload_format(given, PARQUET)
    examples_utils.set_file_format(given, "FILE_FORMAT_PARQUET")
    for split, rows in (("train", ROWS), ("eval", ROWS[1:])):
        columns = {
            name: pa.array([row[name] for row in rows], pa.large_list(kind))
            for name, kind in TYPES.items()
        }
        folder = Path(given.uri, f"Split-{split}")
        folder.mkdir(parents=True)
        pq.write_table(pa.table(columns), folder / "a.parquet", use_compliant_nested_type=False)

    context = BaseBeamExecutor.Context(
        beam_pipeline_args=["--runner=FnApiRunner"], tmp_dir=str(tmp_path), unique_id="1"
    )
    Executor(context).Do({"examples": [given]}, {"tf_examples": [written]}, {})

    assert (written.split_names, written.span, written.version) == (given.split_names, 7, 2)
    assert examples_utils.get_payload_format(written) == TF_EXAMPLE
    for split, rows in (("train", ROWS), ("eval", ROWS[1:])):
        files = [str(file) for file in Path(written.uri, f"Split-{split}").iterdir()]
        records = tf.data.TFRecordDataset(files, "GZIP").as_numpy_iterator()
        found = [tf.train.Example.FromString(record).features.feature for record in records]
        key = sorted(found, key=lambda row: row["count"].int64_list.value[:])
        expected = sorted(rows, key=lambda row: row["count"])
        for row, wanted in zip(key, expected, strict=True):
            kept = {name: values for name, values in wanted.items() if values}
            assert {name for name in TYPES if row[name].WhichOneof("kind")} == kept.keys()
            assert row["fare"].float_list.value == wanted["fare"]
            assert row["count"].int64_list.value == wanted["count"]
            assert row["words"].bytes_list.value == wanted["words"]
    tfxio = tfxio_utils.get_split_tfxio(
        examples=[written], split="eval", telemetry_descriptors=["test"]
    )
    assert type(tfxio).__name__ == "TFExampleRecord"
