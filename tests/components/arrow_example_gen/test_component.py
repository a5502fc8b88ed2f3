"""The node in a pipeline: every value arrives once, in TFX's splits and from TFX's spans."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf import text_format
from parquet_examples import read_splits
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx import v1 as tfx
from tfx.orchestration import metadata
from tfx_bsl.tfxio.parquet_tfxio import ParquetTFXIO

from components import ArrowExampleGen, CsvOptions
from components.arrow_example_gen.executor import ReadRows, ReadTypes, open_input

COMPONENTS = Path(__file__).resolve().parents[3] / "components"
ROWS = [
    {
        "number": i % 3 - 1.0,
        "whole": i,
        "flag": i % 2 == 0,
        "text": ("", "a", None)[i % 3],
        "tags": [1, 2],
    }
    for i in range(24)
]


def run(nodes: list[Any], folder: Path) -> dict[str, list[dict[str, list[Any]]]]:
    """Runs the nodes: split -> what ArrowExampleGen wrote."""
    tfx.orchestration.LocalDagRunner().run(
        tfx.dsl.Pipeline(
            pipeline_name="source",
            pipeline_root=str(folder / "artifacts"),
            components=nodes,
            metadata_connection_config=metadata.sqlite_metadata_connection_config(
                str(folder / "metadata.sqlite")
            ),
            # With an image named, TFX is not packed again for each node.
            beam_pipeline_args=["--runner=FnApiRunner", "--sdk_container_image=unused"],
        )
    )
    (examples,) = folder.glob("artifacts/ArrowExampleGen/examples/*")
    return read_splits(examples)


def whole(row: dict[str, list[Any]]) -> int:
    return row["whole"][0]


def test_the_latest_span_in_splits_by_a_feature(tmp_path):
    """Spans and `partition_feature_name` are TFX's, and zeros, False and "" are values.

    Reference for the split: rows of one `flag` stay together.
    """
    for span, rows in (("1", ROWS[:4]), ("2", ROWS)):
        (tmp_path / f"span-{span}").mkdir()
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"span-{span}" / "a.parquet")
    proto = tfx.proto
    split = proto.SplitConfig.Split
    example_gen = ArrowExampleGen(
        input_base=str(tmp_path),
        input_config=proto.Input(
            splits=[proto.Input.Split(name="all", pattern="span-{SPAN}/*.parquet")]
        ),
        output_config=proto.Output(
            split_config=proto.SplitConfig(
                splits=[split(name=f"part{i}", hash_buckets=1) for i in range(8)],
                partition_feature_name="flag",
            )
        ),
    )
    written = run([example_gen], tmp_path)
    filled = [rows for rows in written.values() if rows]
    assert len(written) == 8
    flags = [{row["flag"][0] for row in rows} for rows in filled]
    assert sorted(map(sorted, flags)) == [[0], [1]]
    found = sorted((each for rows in filled for each in rows), key=whole)
    assert [whole(each) for each in found] == list(range(24))
    for each, row in zip(found, ROWS, strict=True):
        assert each["number"] == [row["number"]]
        assert each["tags"] == [1, 2]
        assert each["text"] == ([] if row["text"] is None else [row["text"].encode()])


SCHEMA = """
feature { name: "late" type: BYTES }
feature { name: "never" type: BYTES }
feature { name: "only" type: INT }
feature { name: "x" type: FLOAT }
"""


def test_all_splits_have_the_types_that_tfx_expects(tmp_path):
    """Where a split has no value of a column that the other one has.

    Reference: Transform refuses files whose Arrow schema is not that of TFXIO for the schema.
    """
    (tmp_path / "train.csv").write_text("x,late,never,only\n" + "1.5,a,,\n,b,,3\n" * 4)
    (tmp_path / "eval.csv").write_text("x,late,never,only\n" + "2.5,,,\n" * 3)
    split = tfx.proto.Input.Split
    example_gen = ArrowExampleGen(
        input_base=str(tmp_path),
        csv=CsvOptions(),
        input_config=tfx.proto.Input(
            splits=[split(name=name, pattern=f"{name}.csv") for name in ("train", "eval")]
        ),
    )
    written = run([example_gen], tmp_path)
    assert sorted(row["x"] for row in written["train"]) == [[]] * 4 + [[1.5]] * 4
    assert written["eval"] == [{"x": [2.5], "late": [], "never": [], "only": []}] * 3
    schema = text_format.Parse(SCHEMA, schema_pb2.Schema())
    files = list(tmp_path.glob("artifacts/ArrowExampleGen/examples/*/Split-*/*"))
    assert len(files) == 2
    for file in files:
        tfxio = ParquetTFXIO(str(file), schema=schema, telemetry_descriptors=["test"])
        assert pq.read_schema(file).remove_metadata() == tfxio.ArrowSchema()


def test_a_window_of_spans_is_read_together_and_its_folders_are_columns_below_the_span(tmp_path):
    """TFX's own driver takes one span alone."""
    for day, rows in (("2024-02-28", 1), ("2024-02-29", 2), ("2024-03-01", 3)):
        folder = tmp_path / f"day={day}" / f"country={'no' if rows == 2 else 'se'}"
        folder.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(ROWS[:rows]), folder / "a.parquet")
    proto = tfx.proto
    pattern = "day={YYYY}-{MM}-{DD}/country=*/*.parquet"
    example_gen = ArrowExampleGen(
        input_base=str(tmp_path),
        input_config=proto.Input(splits=[proto.Input.Split(name="all", pattern=pattern)]),
        output_config=proto.Output(
            split_config=proto.SplitConfig(
                splits=[proto.SplitConfig.Split(name="all", hash_buckets=1)]
            )
        ),
        range_config=proto.RangeConfig(rolling_range=proto.RollingRange(num_spans=2)),
    )
    written = run([example_gen], tmp_path)
    countries = [row["country"][0] for row in written["all"]]
    assert sorted(countries) == [b"no"] * 2 + [b"se"] * 3
    assert not any("day" in row for row in written["all"])


def test_a_list_of_ints_that_would_lose_a_value_ends_the_node(tmp_path):
    rows = [*ROWS[:12], {**ROWS[12], "tags": [1, None, 2]}, *ROWS[13:]]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet", row_group_size=10)
    node = ArrowExampleGen(input_base=str(tmp_path))
    table = open_input(node.exec_properties, "*.parquet")
    with (
        pytest.raises(
            Exception, match=r"a\.parquet, row group 1, row 2: column 'tags', list<.*missing value"
        ),
        beam.Pipeline(runner="FnApiRunner") as pipeline,
    ):
        _ = pipeline | ReadRows(table, pipeline | ReadTypes(table))


def test_the_readmes_code_builds_the_node():
    text = (COMPONENTS / "arrow_example_gen" / "README.md").read_text(encoding="utf-8")
    scope: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(code, scope)
    assert isinstance(scope["example_gen"], ArrowExampleGen)
    assert isinstance(scope["csv_example_gen"], ArrowExampleGen)
