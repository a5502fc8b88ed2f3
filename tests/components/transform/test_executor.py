"""The executor against TFX's on the same rows: the same graph, so the same values bit for bit."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components.transform import executor as tfx_executor
from tfx.components.util import examples_utils, tfxio_utils
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, standard_artifacts
from tfx.types.artifact import Artifact
from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder

from components.transform import executor

pytestmark = pytest.mark.slow(15)

ROWS = {"train": 300, "eval": 100, "empty": 0}
SPLITS = artifact_utils.encode_split_names(list(ROWS))
BEAM_ARGS = ["--runner=FnApiRunner", "--sdk_container_image=unused"]
PARQUET = example_gen_pb2.FORMAT_PARQUET  # pyright: ignore[reportAttributeAccessIssue]


def preprocessing_fn(inputs):
    """Return what our Transform returns (packed vectors), and what others do."""

    def dense(name, default):
        x = tf.SparseTensor(
            inputs[name].indices, inputs[name].values, [inputs[name].dense_shape[0], 1]
        )
        return tf.sparse.to_dense(x, default)

    fare = tft.scale_to_z_score(dense("fare", 0.0))
    company = tf.squeeze(dense("company", ""), axis=1)
    terms = tf.strings.split(company, " ")
    return {
        "packed_float": tf.concat([fare, fare * 2.0, tf.math.log(fare)], axis=1),  # with NaN
        "packed_int": tf.concat([dense("count", -1), dense("count", 0) * 2**40], axis=1),
        "matrix": tf.reshape(tf.tile(fare, [1, 4]), [-1, 2, 2]),
        "scalar": tf.squeeze(fare, axis=1),
        "company": company,
        "words": inputs["words"],
        "terms": terms,
        "terms#": dense("count", -1),  # between the names of "terms" as a tensor and in the schema
        "characters": tf.strings.bytes_split(terms),
    }


class Transformed(NamedTuple):
    graph: str
    examples: Artifact

    def schema(self) -> schema_pb2.Schema:
        return tft.TFTransformOutput(self.graph).transformed_metadata.schema

    def files(self, split: str) -> list[Path]:
        return sorted(Path(self.examples.uri, f"Split-{split}").iterdir())


def raw_table(rows: int) -> pa.Table:
    random = np.random.default_rng(rows)
    lists: dict[str, list[Any]] = {
        "fare": [[x] if x > 0.5 else [] for x in random.lognormal(2.0, 0.7, rows).astype("f4")],
        "count": [[x] for x in random.integers(0, 1000, rows)],
        "company": [[f"cab {x} é".encode()] if x else [] for x in random.integers(0, 9, rows)],
        "words": [
            [b"ab"[i : i + 1] * 3 for i in random.integers(0, 2, n)]
            for n in random.integers(0, 4, rows)
        ],
    }
    kinds = (pa.float32(), pa.int64(), pa.large_binary(), pa.large_binary())
    columns = zip(lists.values(), kinds, strict=True)
    return pa.table([pa.array(c, pa.large_list(kind)) for c, kind in columns], list(lists))


RAW_SCHEMA = text_format.Parse(
    """
    feature { name: "fare" type: FLOAT }
    feature { name: "count" type: INT }
    feature { name: "company" type: BYTES }
    feature { name: "words" type: BYTES }
    """,
    schema_pb2.Schema(),
)


def artifact(kind: Any, folder: Path) -> Any:
    found = kind()
    found.uri = str(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return found


@pytest.fixture(scope="module")
def raw(tmp_path_factory) -> dict[str, Artifact]:
    """The same rows as tf.Examples and as Parquet, and their schema."""
    folder = tmp_path_factory.mktemp("raw")
    found = {
        kind: artifact(standard_artifacts.Examples, folder / kind) for kind in ("tf", "parquet")
    }
    encoder = RecordBatchToExamplesEncoder(RAW_SCHEMA)
    for split, rows in ROWS.items():
        table = raw_table(rows)
        for kind in found:
            (folder / kind / f"Split-{split}").mkdir()
        with tf.io.TFRecordWriter(f"{folder}/tf/Split-{split}/data.gz", "GZIP") as writer:
            for batch in table.to_batches():
                for record in encoder.encode(batch):
                    writer.write(record)
        path = f"{folder}/parquet/Split-{split}/data.parquet"
        pq.write_table(table, path, use_compliant_nested_type=False)
    for examples in found.values():
        examples.split_names = SPLITS
    mark(found["parquet"])
    schema = artifact(standard_artifacts.Schema, folder / "schema")
    Path(schema.uri, "schema.pbtxt").write_text(text_format.MessageToString(RAW_SCHEMA))
    return {**found, "schema": schema}


def mark(examples: Artifact) -> None:
    examples_utils.set_payload_format(examples, PARQUET)
    examples_utils.set_file_format(examples, "FILE_FORMAT_PARQUET")


def run(kind: Any, raw: dict[str, Artifact], payload: str, folder: Path) -> Transformed:
    graph = artifact(standard_artifacts.TransformGraph, folder / "graph")
    examples = artifact(standard_artifacts.Examples, folder / "examples")
    kind(
        kind.Context(beam_pipeline_args=list(BEAM_ARGS), tmp_dir=str(folder / "tmp"), unique_id="1")
    ).Do(
        {"examples": [raw[payload]], "schema": [raw["schema"]]},
        {"transform_graph": [graph], "transformed_examples": [examples]},
        {"module_file": __file__, "disable_statistics": 1},
    )
    return Transformed(graph.uri, examples)


@pytest.fixture(scope="module")
def expected(raw, tmp_path_factory) -> Transformed:
    return run(tfx_executor.Executor, raw, "tf", tmp_path_factory.mktemp("tfx"))


@pytest.fixture(scope="module", params=["tf", "parquet"])
def transformed(request, raw, tmp_path_factory) -> Transformed:
    return run(executor.Executor, raw, request.param, tmp_path_factory.mktemp("ours"))


def read(transformed: Transformed, folder: Path) -> dict[str, dict[str, list[np.ndarray]]]:
    """Split -> the tensors that TFXIO makes of its rows, in their parts."""
    found = {}
    with beam.Pipeline("FnApiRunner") as pipeline:
        for split in ("train", "eval"):
            found[split] = tfxio_utils.get_split_tfxio(
                [transformed.examples], split, ["test"], schema=transformed.schema()
            )
            batches = pipeline | f"Read[{split}]" >> found[split].BeamSource()
            _ = batches | f"Write[{split}]" >> beam.Map(write, str(folder / split))
    tensors = {}
    for split, tfxio in found.items():
        files = sorted(folder.glob(f"{split}-*"), key=lambda file: int(file.suffix[1:]))
        batches = [pa.ipc.open_file(file).get_batch(0) for file in files]
        (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
        read = tfxio.TensorAdapter().ToBatchTensors(batch)
        tensors[split] = {name: parts(tensor) for name, tensor in read.items()}
    return tensors


def write(batch: pa.RecordBatch, path: str) -> None:
    with pa.ipc.new_file(f"{path}-.{time.monotonic_ns()}", batch.schema) as stream:
        stream.write(batch)


def parts(tensor: Any) -> list[np.ndarray]:
    if isinstance(tensor, tf.SparseTensor):
        return [part.numpy() for part in (tensor.indices, tensor.values, tensor.dense_shape)]
    if isinstance(tensor, tf.RaggedTensor):
        return [part.numpy() for part in (tensor.flat_values, *tensor.nested_row_splits)]
    return [tensor.numpy()]


def test_values_are_those_of_tfx(expected, transformed, tmp_path):
    """Floats to 1e-6: TFT's moments depend on the sizes of batches, which Beam chooses by time."""
    (tmp_path / "expected").mkdir()
    reference = read(expected, tmp_path / "expected")
    found = read(transformed, tmp_path)
    assert transformed.schema() == expected.schema()
    for split, tensors in reference.items():
        assert tensors["packed_float"][0].shape == (ROWS[split], 3)
        assert found[split].keys() == tensors.keys()
        for name, wanted in tensors.items():
            for part, other in zip(found[split][name], wanted, strict=True):
                assert part.dtype == other.dtype
                if part.dtype == np.float32:
                    np.testing.assert_allclose(part, other, rtol=1e-6, atol=1e-6)
                else:
                    np.testing.assert_array_equal(part, other)


def test_files_have_the_columns_of_the_schema_in_its_order(transformed):
    names = [feature.name for feature in transformed.schema().feature]
    assert examples_utils.get_payload_format(transformed.examples) == PARQUET
    assert examples_utils.get_file_format(transformed.examples) == "FILE_FORMAT_PARQUET"
    for split, rows in ROWS.items():
        (file,) = transformed.files(split)
        assert file.name == "transformed_examples-00000-of-00001.parquet"
        metadata = pq.read_metadata(file)
        assert metadata.num_rows == rows
        assert pq.read_schema(file).names == names
    assert pq.read_schema(file).field("packed_float").type == pa.large_list(pa.float32())
