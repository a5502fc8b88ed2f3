"""The same Transform node on any engine: its inputs, its run and its outputs."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest
from flink import FlinkCluster, flink_cluster
from tfrecords import serialized_rows

from pipeline.engines.engine import BeamConfig

ROOT = Path(__file__).resolve().parents[3]
TAXI = ROOT / "examples" / "taxi" / "pipeline.yaml"
ROW = "row_number"
"""An additional column, passed through, because engines write rows in any order."""

Columns = Mapping[str, list[Any]]


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail on network use: Beam's validator creates a bucket if temp_location is wrong."""

    def fail(*arguments, **keywords):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    monkeypatch.setattr(socket.socket, "connect", fail)


class Node(NamedTuple):
    """Inputs of a Transform node."""

    examples: Path  # Split-train and Split-eval below
    schema: Path
    features: dict[str, Any]


class Written(NamedTuple):
    """Outputs of a Transform node."""

    splits: dict[str, dict[str, np.ndarray]]  # split -> output -> values, rows by number
    vocabularies: dict[str, list[str]]


def wide_columns(rows: int) -> Columns:
    """Return 12 numbers with missing values, NaN and tails, 8 integers, a text and a label.

    Few of a kind are enough, because engines differ per analyzer, not per column.
    """
    rng = np.random.default_rng(0)
    made: dict[str, list[Any]] = {}
    for i in range(12):
        numbers = rng.lognormal(mean=i % 5, sigma=1 + i % 3, size=rows)
        numbers[rng.random(rows) < 0.02] = np.nan
        gone = rng.random(rows) < 0.05
        made[f"x{i}"] = [None if g else float(v) for g, v in zip(gone, numbers, strict=True)]
    for i in range(8):
        made[f"n{i}"] = [int(v) for v in rng.integers(0, 5 + i, rows)]
    made["word"] = [f"word {v}" for v in rng.zipf(1.5, rows) % 10]
    made["y"] = [int(v) for v in rng.integers(0, 2, rows)]
    return made


WIDE_FEATURES: dict[str, Any] = {
    "groups": [
        {"name": "scaled", "columns": [f"x{i}" for i in range(6)], "scale": "z_score"}
        | {"impute": "mean", "missing_indicator": True},
        {"name": "ranked", "columns": [f"x{i}" for i in range(6, 9)], "scale": "robust"}
        | {"clip": {"quantiles": [0.01, 0.99]}},
        {"name": "ranged", "columns": "x*", "scale": "min_max"},
        {"name": "narrow", "columns": ["n0", "n1"], "scale": "z_score"},
        {"name": "binned", "columns": ["n2", "n3"], "encode": {"bucketize": {"buckets": 4}}},
        {"name": "numbers", "columns": "n*", "impute": "most_frequent", "scale": "gaussian"},
        {"name": "words", "columns": "word", "encode": {"vocabulary": {"top_k": 8}}},
    ],
    "label": {"column": "y", "kind": "binary"},
    "passthrough": [ROW],
}


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    """Return a node of a wide table."""
    return _node(tmp_path_factory.mktemp("wide"), wide_columns(900), WIDE_FEATURES)


@pytest.fixture(scope="session")
def in_memory(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Return the outputs of the in-memory runner: the reference for every other engine."""
    return run_transform(node, BeamConfig(), tmp_path_factory.mktemp("in-memory"))


@pytest.fixture(scope="session")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkCluster]:
    """Start a Flink cluster."""
    with flink_cluster(tmp_path_factory.mktemp("flink") / "cluster") as cluster:
        yield cluster


def run_transform(node: Node, beam: BeamConfig, folder: Path) -> Written:
    """Run the Transform executor on an engine, as the pipeline runs it."""
    from tfx.types import artifact_utils, standard_artifacts
    from tfx.utils import json_utils

    from components.transform.executor import Executor

    examples = standard_artifacts.Examples()
    examples.uri = str(node.examples)
    examples.split_names = artifact_utils.encode_split_names(["train", "eval"])
    schema = standard_artifacts.Schema()
    schema.uri = str(node.schema)
    graph, transformed = standard_artifacts.TransformGraph(), standard_artifacts.Examples()
    graph.uri, transformed.uri = str(folder / "graph"), str(folder / "examples")
    context = Executor.Context(
        beam_pipeline_args=beam.pipeline_args(), tmp_dir=str(folder / "tmp"), unique_id="1"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", sys.argv[:1])  # TFX parses it: pytest's -v is another one there
        executor = Executor(context)
    executor.Do(
        {"examples": [examples], "schema": [schema]},
        {"transform_graph": [graph], "transformed_examples": [transformed]},
        {
            "preprocessing_fn": "transform.preprocessing_fn",
            "custom_config": json_utils.dumps({"features": node.features, "code": ""}),
            "disable_statistics": 1,
        },
    )
    return _read(folder / "graph", folder / "examples")


def assert_same(found: Written, expected: Written) -> None:
    """Assert that rows, matched by number, and vocabularies are equal.

    Integers, labels and texts are equal bit for bit. Floats may differ by 1e-6, relative and
    absolute (values are of order 1), because engines add in different orders.
    """
    assert found.vocabularies == expected.vocabularies
    assert set(found.splits) == set(expected.splits) == {"train", "eval"}
    for split, outputs in expected.splits.items():
        assert set(found.splits[split]) == set(outputs)
        for name, values in outputs.items():
            seen = found.splits[split][name]
            assert seen.dtype == values.dtype
            if np.issubdtype(values.dtype, np.floating):
                np.testing.assert_allclose(seen, values, rtol=1e-6, atol=1e-6, err_msg=name)
            else:
                np.testing.assert_array_equal(seen, values, err_msg=name)


def _read(graph: Path, examples: Path) -> Written:
    splits = {}
    for split in ("train", "eval"):
        table = pq.read_table(examples / f"Split-{split}")
        values = {name: _dense(table[name].combine_chunks()) for name in table.column_names}
        order = np.argsort(values[ROW].reshape(-1))
        splits[split] = {name: value[order] for name, value in values.items()}
    assets = graph / "transform_fn" / "assets"
    vocabularies = {file.name: file.read_text().splitlines() for file in sorted(assets.iterdir())}
    return Written(splits, vocabularies)


def _node(folder: Path, columns: Columns, features: dict[str, Any]) -> Node:
    """Write a node's inputs, with two files in the train split for several workers."""
    import tensorflow as tf
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    columns = {**columns, ROW: list(range(len(next(iter(columns.values())))))}
    rows = serialized_rows(columns)
    third = len(rows) // 3
    for split, part, chunk in (
        ("train", 0, rows[:third]),
        ("train", 1, rows[third : 2 * third]),
        ("eval", 0, rows[2 * third :]),
    ):
        target = folder / "examples" / f"Split-{split}" / f"part-{part}.gz"
        target.parent.mkdir(parents=True, exist_ok=True)
        with tf.io.TFRecordWriter(str(target), "GZIP") as writer:
            for row in chunk:
                writer.write(row)
    schema = schema_pb2.Schema()
    for name, values in columns.items():
        value = next((v for v in values if v is not None), 0.0)
        kind = {int: schema_pb2.INT, float: schema_pb2.FLOAT, str: schema_pb2.BYTES}[type(value)]
        schema.feature.add(name=name, type=kind)
    (folder / "schema").mkdir()
    (folder / "schema" / "schema.pbtxt").write_text(text_format.MessageToString(schema))
    return Node(folder / "examples", folder / "schema", features)


def _dense(lists: Any) -> np.ndarray:
    """Return `[rows, values]` of an Arrow array, with 0 or an empty text behind shorter lists."""
    lengths = lists.value_lengths().to_numpy()
    values = lists.flatten().to_numpy(zero_copy_only=False)
    dense = np.full(
        [len(lengths), max(lengths)], b"" if values.dtype == object else 0, values.dtype
    )
    dense[np.arange(max(lengths)) < lengths[:, np.newaxis]] = values
    return dense
