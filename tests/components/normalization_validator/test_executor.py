"""The executor on transformed examples that plain tensorflow_transform wrote."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components.util import examples_utils
from tfx.proto import example_gen_pb2
from tfx.types import standard_artifacts
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from components.normalization_validator.component import NormalizationBlessing, NormalizationReport
from components.normalization_validator.executor import Executor, NormalizationError
from components.normalization_validator.limits import NormalizationLimits
from components.normalization_validator.report import ColumnStatistics, Report
from trainer_module.common import progress
from trainer_module.common.progress import RowsCounted, RowsProcessed, progress_of

pytestmark = pytest.mark.slow  # the fixtures run tensorflow_transform

# With an image named, TFX is not packed again for each node.
BEAM_ARGS = ["--runner=FnApiRunner", "--sdk_container_image=unused"]


class Run:
    """Execute the node once, in a new folder."""

    def __init__(self, transformed, folder: Path, on_failure="fail", statistics=(), **limits: Any):
        examples = standard_artifacts.Examples()
        examples.uri, examples.split_names = transformed.examples, '["train", "eval"]'
        if list(Path(examples.uri).glob("*/*.parquet")):
            parquet = example_gen_pb2.FORMAT_PARQUET  # pyright: ignore[reportAttributeAccessIssue]
            examples_utils.set_payload_format(examples, parquet)
        graph = standard_artifacts.TransformGraph()
        graph.uri = transformed.graph
        self.report_artifact, self.blessing = NormalizationReport(), NormalizationBlessing()
        self.report_artifact.uri = str(folder / "report" / "7")
        self.blessing.uri = str(folder / "blessing" / "7")
        context = Executor.Context(beam_pipeline_args=BEAM_ARGS)
        Executor(context).Do(
            {"examples": [examples], "transform_graph": [graph], "statistics": list(statistics)},
            {"report": [self.report_artifact], "blessing": [self.blessing]},
            {"limits": NormalizationLimits.of(limits).model_dump_json(), "on_failure": on_failure},
        )
        text = Path(self.report_artifact.uri, "report.json").read_text()
        self.report = Report.model_validate_json(text)

    def column(self, name: str, split: str = "train") -> ColumnStatistics:
        return next(c for c in self.report.split(split).columns if c.name == name)


@pytest.fixture(scope="module")
def packed_run(packed_examples, tmp_path_factory) -> Run:
    return Run(packed_examples, tmp_path_factory.mktemp("run"))


def _assert_statistics(got: ColumnStatistics, values: np.ndarray, observed: np.ndarray) -> None:
    """Reference: float64 NumPy over the written values, 1e-12 relative.

    The mean of a z-scored column is near 0, so its error is also bounded by 1e-12 of the largest
    value.
    """
    wide = values.astype(np.float64)
    scale = float(np.abs(wide).max())
    assert got.values == len(wide)
    assert got.count == np.count_nonzero(observed)
    assert got.imputed == len(wide) - got.count
    assert got.mean == pytest.approx(wide[observed].mean(), rel=1e-12, abs=1e-12 * scale)
    assert got.std == pytest.approx(wide[observed].std(), rel=1e-12)
    assert (got.min, got.max) == (wide.min(), wide.max())


def test_packed_columns_have_numpys_statistics(packed_examples, packed_run):
    for split in ["train", "eval"]:
        floats = np.array(packed_examples.read(split, "packed_float"), np.float32)
        ids = np.array(packed_examples.read(split, "packed_int"))
        missing = np.array(packed_examples.read(split, "packed_missing"))[:, 0] & 1 == 1
        everything = np.ones(len(floats), bool)
        assert missing.any()
        assert packed_run.report.split(split).rows == len(floats)
        for name, values, observed in [
            ("fare", floats[:, 0], ~missing),
            ("flat", floats[:, 1], everything),
            ("share", floats[:, 2], everything),
            ("fare_missing", floats[:, 3], everything),
            ("company", ids[:, 0], everything),
        ]:
            _assert_statistics(packed_run.column(name, split), values, observed)


def test_a_good_transform_is_blessed(packed_run):
    columns = packed_run.report.split("train").columns
    assert [(c.name, c.kind, c.feature, c.position) for c in columns] == [
        ("fare", "z_score", "packed_float", 0),
        ("flat", "z_score", "packed_float", 1),
        ("share", "min_max", "packed_float", 2),
        ("fare_missing", "missing_indicator", "packed_float", 3),
        ("company", "integer", "packed_int", 0),
    ]
    assert packed_run.column("flat").constant
    assert packed_run.report.violations == ()
    assert packed_run.report.blessed
    assert packed_run.report_artifact.get_int_custom_property("violations") == 0
    assert packed_run.report_artifact.get_int_custom_property("blessed") == 1
    assert packed_run.blessing.get_int_custom_property("blessed") == 1
    assert os.listdir(packed_run.blessing.uri) == ["BLESSED"]
    assert os.listdir(packed_run.report_artifact.uri) == ["report.json"]


def test_unpacked_columns_of_a_plain_transform(unpacked_examples, tmp_path):
    run = Run(unpacked_examples, tmp_path, kinds={"fare": "z_score", "pair*": "min_max"})
    columns = run.report.split("train").columns
    assert [(c.name, c.kind) for c in columns] == [
        ("fare", "z_score"),
        ("pair[0]", "min_max"),
        ("pair[1]", "min_max"),
        ("sparse", None),
    ]
    pair = np.array(unpacked_examples.read("train", "pair"), np.float32)
    _assert_statistics(columns[2], pair[:, 1], np.ones(len(pair), bool))
    rows = unpacked_examples.read("train", "sparse")
    sparse = np.array([v for row in rows for v in row], np.float32)
    _assert_statistics(columns[3], sparse, np.ones(len(sparse), bool))
    assert columns[3].absent == len(rows) - len(sparse) > 0
    assert run.report.blessed


def test_violated_limits_stop_the_node_and_leave_a_report(unpacked_examples, tmp_path, caplog):
    with pytest.raises(NormalizationError) as error:
        Run(unpacked_examples, tmp_path, kinds={"sparse": "z_score", "fare": "min_max"})
    message = str(error.value)
    assert "4 limits are violated:\n" in message
    assert "column 'fare' (min_max), split train: min -" in message
    assert "column 'sparse' (z_score), split train: mean " in message
    assert "(normalization.z_score.max_abs_mean)" in message
    kept = tmp_path / "report" / "7-failed"
    assert f"Report: {kept / 'report.json'}\n" in message
    shutil.rmtree(tmp_path / "report" / "7")  # as TFX does
    report = Report.model_validate_json((kept / "report.json").read_text())
    assert not report.blessed
    assert all(violation.message in message for violation in report.violations)
    assert not (tmp_path / "blessing" / "7").exists()


def test_warn_logs_and_does_not_bless(unpacked_examples, tmp_path, caplog):
    with caplog.at_level(logging.INFO, logger="absl"):
        run = Run(unpacked_examples, tmp_path, on_failure="warn", kinds={"sparse": "z_score"})
    assert len(run.report.violations) == 2
    assert run.report_artifact.get_int_custom_property("violations") == 2
    assert run.report_artifact.get_int_custom_property("blessed") == 0
    assert run.blessing.get_int_custom_property("blessed") == 0
    assert os.listdir(run.blessing.uri) == ["NOT_BLESSED"]
    warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert any("column 'sparse' (z_score), split train: mean" in text for text in warned)


def test_a_constant_that_the_raw_data_had_not_is_no_normalised_column(packed_examples, tmp_path):
    """`flat` is 0 everywhere; these statistics say that its raw column is not constant."""
    import tensorflow_data_validation as tfdv

    statistics = standard_artifacts.ExampleStatistics()
    statistics.uri, statistics.split_names = str(tmp_path / "statistics"), '["train"]'
    found = tfdv.generate_statistics_from_dataframe(
        pd.DataFrame({"flat": np.float32([7, 8]), "share": np.float32([1, 1])})
    )
    file = tmp_path / "statistics" / "Split-train" / "FeatureStats.pb"
    file.parent.mkdir(parents=True)
    file.write_bytes(found.SerializeToString())
    with pytest.raises(NormalizationError) as error:
        Run(packed_examples, tmp_path, statistics=[statistics])
    message = str(error.value)
    assert "1 limit is violated:\n" in message
    assert "split train: every value is 0, but the raw column 'flat' " in message


def test_progress_reaches_the_console(packed_examples, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(progress, "_LOG_SECONDS", 0.0)
    with caplog.at_level(logging.INFO, logger="absl"):
        run = Run(packed_examples, tmp_path)
    *running, ended = [record for line in caplog.records if (record := progress_of(line))]
    rows = sum(split.rows for split in run.report.splits)
    assert ended == RowsCounted("NormalizationValidator", rows)
    assert sum(record.rows for record in running) == rows
    assert {type(record) for record in running} == {RowsProcessed}


def test_parquet_gives_the_same_report(packed_examples, packed_run, tmp_path):
    """Of row groups smaller and larger than what the validator takes at once."""
    schema = tft.TFTransformOutput(packed_examples.graph).transformed_metadata.schema
    decoder = ExamplesToRecordBatchDecoder(schema.SerializeToString())
    for split, rows in (("train", 700), ("eval", 4_000)):
        files = sorted(Path(packed_examples.examples, f"Split-{split}").iterdir())
        records = tf.data.TFRecordDataset([str(file) for file in files], "GZIP")
        batch = decoder.DecodeBatch(list(records.as_numpy_iterator()))
        folder = tmp_path / "examples" / f"Split-{split}"
        folder.mkdir(parents=True)
        pq.write_table(
            pa.Table.from_batches([batch]),
            folder / "examples.parquet",
            row_group_size=rows,
            use_compliant_nested_type=False,
        )
    found = Run(packed_examples._replace(examples=str(tmp_path / "examples")), tmp_path)
    for split in ("train", "eval"):
        columns = (r.report.split(split).columns for r in (found, packed_run))
        for one, other in zip(*columns, strict=True):
            assert (one.histogram, one.min, one.max) == (other.histogram, other.min, other.max)
            assert (one.mean, one.std) == pytest.approx((other.mean, other.std), abs=1e-12)


def test_an_empty_train_split_is_refused(packed_examples, tmp_path):
    for split in ("train", "eval"):
        file = tmp_path / f"Split-{split}" / "transformed_examples-00000-of-00001.gz"
        file.parent.mkdir()
        tf.io.TFRecordWriter(str(file), "GZIP").close()
    empty = packed_examples._replace(examples=str(tmp_path))
    with pytest.raises(ValueError, match=r"Split 'train' of the transformed examples .* no row"):
        Run(empty, tmp_path / "run")


def _with_shape(name: str) -> Any:
    def change(schema):
        next(f for f in schema.feature if f.name == name).shape.dim[0].size = 3

    return change


def _without_floats(schema) -> None:
    for feature in schema.feature:
        feature.type = schema_pb2.INT


@pytest.mark.parametrize(
    ("which", "change", "words"),
    [
        ("unpacked", _with_shape("pair"), r"'pair' holds 2 values in a row, where .* says 3"),
        ("unpacked", _without_floats, "holds no float feature"),
        ("packed", _with_shape("packed_float"), "'fare_missing' at position 3 of 'packed_float'"),
    ],
)
def test_examples_and_graph_that_do_not_belong_together(request, tmp_path, which, change, words):
    transformed = request.getfixturevalue(f"{which}_examples")
    with pytest.raises(Exception, match=words):
        Run(_with_schema(transformed, tmp_path, change), tmp_path)


def _with_schema(transformed, folder: Path, change):
    """The same examples behind a transform graph whose schema says something else."""
    source = Path(transformed.graph, "transformed_metadata", "schema.pbtxt")
    schema = text_format.Parse(source.read_text(), schema_pb2.Schema())
    change(schema)
    target = folder / "graph" / "transformed_metadata"
    target.mkdir(parents=True)
    (target / "schema.pbtxt").write_text(text_format.MessageToString(schema))
    shutil.copytree(Path(transformed.graph, "transform_fn"), folder / "graph" / "transform_fn")
    return transformed._replace(graph=str(folder / "graph"))
